"""bppsa-reproduce: every figure runs small."""

import json

import numpy as np
import pytest
from commands import command, error_line, folder  # noqa: F401  folder is a fixture

from bppsa_cupy.tools.reproduce import main
from bppsa_cupy.tools.reproduction import stale_weights

pytestmark = pytest.mark.usefixtures("folder")


def made(name):
    """The JSON beside a picture."""
    with open(f"out/{name}.png", "rb") as picture:
        assert picture.read(4) == b"\x89PNG"
    with open(f"out/{name}.json", encoding="utf-8") as file:
        facts = json.load(file)
    assert facts["name"] == name and facts["command"].startswith("bppsa-reproduce ")
    return facts


@pytest.fixture
def images(folder):
    """Small images of three channels in two classes."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((24, 3, 20, 20)).astype(np.float32), np.arange(24) % 2
    np.savez("images.npz", x_train=x[:16], y_train=y[:16], x_test=x[16:], y_test=y[16:])


@pytest.fixture
def bits(folder):
    words = "bitstream --length 12 --samples 24 --test-samples 8 -o bits.h5"
    assert command("bppsa-data")(words.split()) == 0


SMOKE = {
    "figure6": "--data images.npz --iterations 3 --batch-size 4",
    "figure7": "--data bits.h5 --iterations 3 --batch-size 4",
    "figure13": "--data bits.h5 --iterations 3 --batch-size 4",
    "prune": "--data images.npz --model lenet5 --iterations 2 --retrain 2 --batch-size 4",
    "resnet20": "--data images.npz --model lenet5 --iterations 2 --batch-size 4 --threads 1",
}


@pytest.mark.long
@pytest.mark.usefixtures("images", "bits", "pytorch")
@pytest.mark.parametrize("name", SMOKE)
def test_a_figure_runs_and_agrees(name):
    assert main([name, *SMOKE[name].split(), "--output", "out", "--device", "host"]) == 0
    for row in made("lenet5" if name == "resnet20" else name)["rows"]:
        assert all(row.get("comparison", {}).get("agrees", {"": True}).values()), row["comparison"]


# ---- stale weights ----


@pytest.mark.long
def test_results_are_stored_and_continued():
    words = "pipeline --epochs 1 --output out --like".split()
    assert main([*words, "4 stages, lr 0.01"]) == 0
    (first,) = made("pipeline-digits")["runs"]
    assert (first["row"], first["steps"], first["ppv"], first["seed"]) == ("4 stages, lr 0.01", 45, [1], 0)
    assert first["accuracy"] == first["curve"][-1][1] > 40 and first["curve"][-1][0] == 45
    assert main([*words, "4 stages, lr 0.01", "--seeds", "2"]) == 0
    again = made("pipeline-digits")["runs"]
    assert again[0] == first and [entry["seed"] for entry in again] == [0, 1]


@pytest.mark.long
def test_a_run_that_diverges_is_told():
    result = stale_weights.train_one(stale_weights.Run("wild", 1e20, 90, (1,)), "host")
    assert result["accuracy"] is None and result["diverged"]


def test_errors_are_one_line(folder, capsys):
    assert main("pipeline --like nothing --output out".split()) == 1 and error_line(capsys)
    path = folder / "out" / "pipeline-digits.json"
    path.write_text('{"runs": [{"row": "?"}]}', encoding="utf-8")
    assert main("pipeline --output out".split()) == 1 and error_line(capsys)
    assert path.read_text(encoding="utf-8") == '{"runs": [{"row": "?"}]}'

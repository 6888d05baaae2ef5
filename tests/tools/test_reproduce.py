"""bppsa-reproduce: every figure runs small; counts of FLOP by hand, tables of the paper."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from commands import command, error_line, folder  # noqa: F401  folder is a fixture

from bppsa_cupy.data import Split
from bppsa_cupy.tools.reproduce import main, parser
from bppsa_cupy.tools.reproduction import curves, stale_weights
from bppsa_cupy.tools.reproduction import stale_weights_runs as cases

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
    "forgetting": "--data bits.h5 --epochs 1 --seeds 1 --radii 0.5,1 --sequences 4 --hidden-size 3",
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


def test_curves_are_held_to_three_times_the_noise():
    def curve(*losses):
        return curves.Curve(list(losses), [0.1] * len(losses), [(0.0, 0.5)])

    runs = {"bp": curve(1.0, 1.0), "scan": curve(1.0, 1.2), "wild": curve(1.0, 2.0), "noise": curve(1.0, 1.1)}
    found = curves.compare(runs, "bp", "bp", "float64")
    assert found["limit"] == pytest.approx(0.3) and found["agrees"] == {"scan": True, "wild": False}
    del runs["noise"]
    assert curves.compare(runs, "bp", "bp", "float64")["limit"] == curves.FLOAT64_LIMIT


# ---- figure 10 ----


# ---- stale weights ----


@pytest.mark.long
def test_results_are_stored_and_continued():
    words = "pipeline --table digits --epochs 1 --output out --like".split()
    assert main([*words, "4 stages, lr 0.01"]) == 0
    (run,) = made("pipeline-digits")["runs"]
    assert (run["row"], run["steps"], run["ppv"], run["seed"]) == ("4 stages, lr 0.01", 45, [1], 0)
    assert run["accuracy"] == run["curve"][-1][1] > 40 and run["curve"][-1][0] == 45
    assert main([*words, "4 stages, lr 0.01", "--seeds", "2"]) == 0
    again = made("pipeline-digits")["runs"]
    assert again[0] == run and [one["seed"] for one in again] == [0, 1]


def test_a_run_that_diverges_is_told():
    wild = cases.make_run("wild", "lenet5", data="digits", ppv=(1,), steps=90, optimizer={"lr": 1e20})
    result = cases.train_one(wild, "digits", "host")
    assert result["accuracy"] is None and result["diverged"]


def test_the_tables_of_the_paper():
    assert main("pipeline --table 6 --output out".split()) == 0
    with open("out/pipeline-6.json", encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    assert [round(row["increase_percent"], 1) for row in rows] == [58.6, 57.7, 57.4, 57.3, 57.2]
    for row in rows:
        assert round(row["weights"], 2) == row["paper"]["weights"]
        assert abs(row["activations"] / row["paper"]["activations"] - 1) < 0.08
    plain = list(cases.table2(beside=False))
    assert [(run.model, run.stages, run.paper) for run in plain] == [
        (model, stages, paper) for model, row in cases.TABLE2.items() for stages, paper in row.items()
    ]
    ppvs = [run.ppv for run in cases.table3() if run.optimizer["lr"] == 0.01]
    assert ppvs[1] == (3, 5, 7) and ppvs[-1] == tuple(range(3, 20, 2)) and len(ppvs) == 8
    train = Split(np.zeros((10000, 1)), np.zeros(10000, int), None)
    arguments = parser().parse_args("pipeline --table 4 --data cifar10 --epochs 8".split())
    wanted = stale_weights._wanted(arguments, SimpleNamespace(input_shape=(3, 32, 32), train=train))
    assert [(one.after, one.steps) for one in wanted] == [(None, 632), (None, 632), (421, 632), (421, 842)]


@pytest.mark.parametrize("words", ["--table 2", "--table digits --like nothing", "--table 2 --data /no/data"])
def test_errors_are_one_line(words, capsys):
    assert main(["pipeline", *words.split(), "--output", "out"]) == 1 and error_line(capsys)


def test_a_file_of_other_results_is_left_alone(folder, capsys):
    (folder / "out").mkdir()
    path = folder / "out" / "pipeline-digits.json"
    path.write_text('{"runs": [{"row": "?"}]}', encoding="utf-8")
    assert main("pipeline --table digits --output out".split()) == 1 and error_line(capsys)
    assert path.read_text(encoding="utf-8") == '{"runs": [{"row": "?"}]}'

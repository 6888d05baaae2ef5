"""bppsa-reproduce resnet20: training by PyTorch from the same state on the same batches, and the files."""

import json
import sys
from functools import partial

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.data import load
from bppsa_cupy.models.resnet import resnet
from bppsa_cupy.tools import reproduce
from bppsa_cupy.tools import train as train_tool
from bppsa_cupy.tools.figures import image_curves
from bppsa_cupy.tools.figures.image_curves import compare
from bppsa_cupy.tools.figures.torch_training import PYTORCH, Curve, train_by_torch
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings

pytestmark = pytest.mark.usefixtures("pytorch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """22 training and 9 test images in CIFAR-10's layout, each class of a brightness of its own."""
    path, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(7)
    for name, count in (("data_batch_1.bin", 22), ("test_batch.bin", 9)):
        records = rng.integers(0, 60, (count, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(count) % 10
        records[:, 1:] += (19 * records[:, :1]).astype(np.uint8)
        records.tofile(path / name)
    return path


def with_dropout(seed, **options):
    """Dropout, batch normalisation, and a shortcut with parameters."""
    body = [bp.Conv2d(4, 6, 3, 2, 1), bp.BatchNorm2d(6)]
    layers = [
        bp.Conv2d(3, 4, 5, 4), bp.ReLU(), bp.Dropout(0.3), bp.Residual(body, [bp.Conv2d(4, 6, 1, 2)]),
        bp.AdaptiveAvgPool2d(1), bp.Flatten(), bp.Dropout(0.5), bp.Linear(6, 10),
    ]  # fmt: skip
    return bp.Sequential(layers, input_shape=(3, 32, 32), seed=seed, **options)


@pytest.mark.parametrize("make", [partial(resnet, 8), with_dropout], ids=["resnet8", "dropout"])
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [(bp.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-2}), (bp.AdamW, {"lr": 0.01})],
    ids=["sgd", "adamw"],
)
def test_training_is_pytorchs(folder, make, optimizer, options):
    """Losses, evaluations by epoch, parameters and running statistics; an epoch's last batch is short."""
    dataset = load(folder)
    settings = Settings(
        method="bp", epochs=3, iterations=8, batch_size=7, seed=3, lr_schedule="warmup:2,cosine",
        augment="crop-flip", label_smoothing=0.1, clip=2.0,
    )  # fmt: skip
    theirs = train_by_torch(
        make(seed=1, dtype="float64", device="host"), dataset, settings, optimizer, **options
    )
    net = make(seed=1, dtype="float64", device="host")
    history = train(net, dataset, optimizer(net.parameters, **options), settings)
    np.testing.assert_allclose(theirs.losses, history.losses, rtol=1e-9)
    assert len(theirs.seconds) == 8 and np.all(np.diff(theirs.seconds) > 0)
    ours = [(row["test_loss"], row["test_accuracy"]) for row in history.evaluations()]
    assert len(theirs.evaluations) == 2
    np.testing.assert_allclose(theirs.evaluations, ours, rtol=1e-9)
    assert list(theirs.state) == list(net.state_dict())
    for name, array in net.state_dict().items():
        np.testing.assert_allclose(theirs.state[name], array, rtol=1e-7, atol=1e-9, err_msg=name)


def test_the_network_that_is_copied_stays_as_it_is(folder):
    net = with_dropout(0, device="host").eval()
    before = net.state_dict()
    settings = Settings(iterations=2, batch_size=8, seed=3)
    curve = train_by_torch(net, load(folder), settings, bp.SGD, lr=0.1)
    assert all(np.array_equal(before[name], array) for name, array in net.state_dict().items())
    assert any(not np.array_equal(before[name], array) for name, array in curve.state.items())


def test_dropout_inside_of_a_block_is_refused(folder):
    block = bp.Residual([bp.Flatten(), bp.Dropout()], [bp.Flatten()])
    net = bp.Sequential([block, bp.Linear(3072, 10)], input_shape=(3, 32, 32), device="host")
    with pytest.raises(bp.BppsaError, match="Dropout inside of Residual"):
        train_by_torch(net, load(folder), Settings(), bp.SGD, lr=0.1)


def test_the_files(folder, tmp_path, capsys):
    line = ["resnet20", "--model", "lenet5", "--data", str(folder), "--out", str(tmp_path), "--epochs", "2",
            "--batch-size", "8", "--lr-schedule", "warmup:2,cosine", "--augment", "crop-flip",
            "--seed", "4", "5", "--threads", "1", "--device", "host"]  # fmt: skip
    assert reproduce.main(line) == 0
    result = json.loads((tmp_path / "lenet5.json").read_text(encoding="utf-8"))
    assert result["name"] == "lenet5" and result["settings"]["seed"] == [4, 5]
    assert result["data"]["training"] == 22 and result["optimizer"]["momentum"] == 0.9
    first = result["first_steps"]
    assert [first[dtype]["steps"] for dtype in ("float64", "float32")] == [6, 1]
    assert all(
        found["agrees"] and set(found["difference"]) == {"losses", "parameters"} for found in first.values()
    )
    one, two = result["rows"]
    assert set(one["curves"]) == {"ours", PYTORCH, "ours with noise"} and set(two["curves"]) == {
        "ours",
        PYTORCH,
    }
    for row in (one, two):
        compared, curves = row["comparison"], row["curves"]
        np.testing.assert_allclose(curves[PYTORCH]["losses"], curves["ours"]["losses"], rtol=1e-3)
        assert {len(curve["losses"]) for curve in curves.values()} == {6}
        assert compared["accuracy"][PYTORCH] == curves[PYTORCH]["test_accuracies"][1]
        assert compared["accuracy_of_pytorchs_state_by_us"] == compared["accuracy"][PYTORCH]
    assert one["curves"]["ours"]["losses"] != two["curves"]["ours"]["losses"]
    assert (tmp_path / "lenet5.png").read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert "first 6 steps, float64: largest relative difference: losses" in out and out.count("agrees") == 2
    assert (
        "seed 5: the first loss lies" in out and "no loss is 1 % from PyTorch's; test accuracy: ours" in out
    )


def test_our_curve_is_that_of_bppsa_train(folder, tmp_path):
    shared = ["--data", str(folder), "--epochs", "2", "--batch-size", "8", "--lr", "0.1", "--lr-schedule",
              "cosine", "--augment", "crop-flip", "--seed", "3", "--device", "host"]  # fmt: skip
    assert reproduce.main(["resnet20", "--model", "lenet5", "--out", str(tmp_path), *shared]) == 0
    log = tmp_path / "log.jsonl"
    assert train_tool.main(["lenet5", "--weight-decay", "0.0001", "--log", str(log), *shared]) == 0
    rows = [json.loads(row) for row in log.read_text(encoding="utf-8").splitlines()]
    result = json.loads((tmp_path / "lenet5.json").read_text(encoding="utf-8"))
    ours = result["rows"][0]["curves"]["ours"]
    np.testing.assert_allclose(ours["losses"], [row["loss"] for row in rows], rtol=1e-8)
    accuracies = [row["test_accuracy"] for row in rows if "test_accuracy" in row]
    assert ours["test_accuracies"] == accuracies and len(accuracies) == 2


def test_buffers_are_compared_and_a_test_set_is_not_needed(folder, tmp_path, capsys):
    """A model of the user's own names the files by its factory."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "data_batch_1.bin").write_bytes((folder / "data_batch_1.bin").read_bytes())
    model = tmp_path / "mine.py"
    model.write_text("from bppsa_cupy.models import resnet\nsmall = resnet.of_depth(8)\n", encoding="utf-8")
    line = ["resnet20", "--model", f"{model}:small", "--data", str(tmp_path / "images"),
            "--out", str(tmp_path), "--batch-size", "11", "--iterations", "1"]  # fmt: skip
    assert reproduce.main(line) == 0
    result = json.loads((tmp_path / "small.json").read_text(encoding="utf-8"))
    assert set(result["first_steps"]["float64"]["difference"]) == {"losses", "parameters", "buffers"}
    assert "accuracy" not in result["rows"][0]["comparison"]
    assert "accuracy" not in capsys.readouterr().out


def test_a_network_that_differs_is_told(folder, tmp_path, monkeypatch, capsys):
    """PyTorch's side with another momentum: the second loss differs."""
    theirs = image_curves.train_by_torch
    changed = {"momentum": 0.0, "weight_decay": 0.3}
    monkeypatch.setattr(
        image_curves, "train_by_torch", lambda *args, **options: theirs(*args, **{**options, **changed})
    )
    line = ["resnet20", "--model", "lenet5", "--data", str(folder), "--out", str(tmp_path),
            "--batch-size", "8", "--iterations", "3", "--lr", "0.1", "--device", "host"]  # fmt: skip
    assert reproduce.main(line) == 0
    assert "DIFFERS" in capsys.readouterr().out


def test_curves_in_numbers():
    ours = Curve([2.0, 1.0, 0.5], evaluations=[(1.0, 0.25), (1.0, 0.5)])
    theirs = Curve([2.0, 1.001, 0.51], evaluations=[(1.0, 0.5), (1.0, 0.48)])
    found = compare({"ours": ours, PYTORCH: theirs})
    assert found["first_loss"] == {PYTORCH: 0} and found["step_beyond_1_percent"] == {PYTORCH: 3}
    assert found["accuracy"] == {"ours": 0.5, PYTORCH: 0.48}
    assert found["points_from_ours"][PYTORCH] == pytest.approx(-2)
    assert compare({"ours": ours, PYTORCH: ours})["step_beyond_1_percent"] == {PYTORCH: None}


def test_without_pytorch_it_says_so(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert reproduce.main(["resnet20", "--data", str(folder), "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: the comparison takes PyTorch") and error.count("\n") == 1
    assert not list(tmp_path.iterdir())

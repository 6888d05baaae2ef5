"""bppsa-reproduce on small data: the numbers and pictures of each figure, and training by PyTorch."""

import json
import sys
from functools import partial

import numpy as np
import pytest
from marks import some
from sequence_cases import write_bits, write_padded

import bppsa_cupy as bp
from bppsa_cupy.data import load
from bppsa_cupy.models import build_model
from bppsa_cupy.models.resnet import resnet
from bppsa_cupy.tools import data as data_tool
from bppsa_cupy.tools import train as train_tool
from bppsa_cupy.tools.reproduce import main
from bppsa_cupy.tools.reproduction import lenet5, torch_training
from bppsa_cupy.tools.reproduction.curves import PYTORCH, Curve, compare, in_words
from bppsa_cupy.tools.reproduction.forgetting import CELLS, norms_back, set_radius
from bppsa_cupy.tools.reproduction.images import compare as compare_runs
from bppsa_cupy.tools.reproduction.torch_training import train_by_torch
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """22 training and 9 test images in CIFAR-10's layout, each class of a brightness of its own."""
    path, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(7)
    for name, count in (("data_batch_1.bin", 22), ("test_batch.bin", 9)):
        records = rng.integers(0, 60, (count, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(count) % 10
        records[:, 1:] += (19 * records[:, :1]).astype(np.uint8)
        records.tofile(path / name)
    return path


def test_figure6(images, tmp_path, capsys):
    out = tmp_path / "out"
    code = main(
        ["figure6", "--data", str(images), "--out", str(out), "--iterations", "3", "--batch-size", "4",
         "--device", "host"]
    )  # fmt: skip
    assert code == 0
    result = json.loads((out / "figure6.json").read_text(encoding="utf-8"))
    assert result["command"].startswith("bppsa-reproduce figure6 --data")
    float64, float32 = result["losses"]["float64"], result["losses"]["float32"]
    assert set(float64) == {"bp", "linear", "blelloch", "hybrid"}
    assert set(float32) == {*float64, *lenet5.NOISY}
    assert all(len(losses) == 3 for losses in float32.values())
    rows = result["comparison"]
    assert [row["agrees"] for row in rows if row["dtype"] == "float64"] == [True] * 3
    assert (out / "figure6.png").read_bytes().startswith(b"\x89PNG")
    assert "largest relative difference to bp" in capsys.readouterr().out


def test_pruning_and_retraining(images, tmp_path, capsys):
    """In float64, so that the curves agree whatever training does to rounding errors."""
    code = main(
        ["prune", "--data", str(images), "--out", str(tmp_path), "--model", "lenet5", "--prune", "0.9",
         "--iterations", "6", "--retrain", "5", "--batch-size", "8", "--test-samples", "30",
         "--dtype", "float64", "--device", "host"]
    )  # fmt: skip
    assert code == 0
    result = json.loads((tmp_path / "prune.json").read_text(encoding="utf-8"))
    losses = result["losses"]
    assert {label: len(curve) for label, curve in losses.items()} == {
        "training": 6, "bp": 5, "auto": 5, "hybrid": 5, "bp with noise": 5,
    }  # fmt: skip
    assert all(0.89 < part < 0.91 for part in result["pruned"].values()) and len(result["pruned"]) == 5
    np.testing.assert_allclose(losses["hybrid"], losses["bp"], rtol=1e-9)
    assert (
        result["backward"]["hybrid"].endswith("levels")
        and "hybrid of 1 levels" in result["backward"]["hybrid"]
    )
    assert list(result["accuracy"]) == ["trained", "pruned", "bp", "auto", "hybrid", "bp with noise"]
    assert (tmp_path / "prune.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert (
        "hybrid: largest relative difference of losses to bp" in printed and "accuracy, pruned: " in printed
    )


def test_a_scan_is_held_to_rounding_while_noise_is_small():
    """Whatever noise does later: a difference of a thousandth at the third step is none of rounding."""
    bp = np.linspace(2, 1, 60)
    losses = {"bp": bp, "noise 1": bp.copy(), "right": bp * (1 + 1e-6), "wrong": bp.copy()}
    losses["noise 1"][40:] *= 1.5
    losses["right"][45:] *= 1.2
    losses["wrong"][2] *= 1.001
    right, wrong = compare(losses, ["right", "wrong"], ["noise 1"], 12, "float32")
    assert right["agrees"] and not wrong["agrees"] and right["difference"] > 0.2 > wrong["difference"]
    assert right["steps"] == 40 and right["limit"] == 12 * 40 * np.finfo("float32").eps
    assert right["noise"] == pytest.approx(0.5) and right["first_difference"] < 2e-6
    assert in_words(wrong).endswith("DIFFERS; in all 1.0e-03, of bp under noise of one ulp 5.0e-01")
    (row,) = compare(losses, ["wrong"], [], 12, "float64")
    assert not row["agrees"] and (row["steps"], row["limit"], row["noise"]) == (60, 1e-8, None)


def test_missing_data_is_one_line(tmp_path, capsys):
    assert main(["figure6", "--data", str(tmp_path / "none")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1


# ---- figures 7 and 13 ----


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_figure7(tmp_path, capsys):
    bits = write_bits(tmp_path / "bits.h5")
    line = ["figure7", "--data", str(bits), "--out", str(tmp_path), "--epochs", "9", "--iterations", "25",
            "--device", "host"]  # fmt: skip
    assert main(line) == 0
    result = json.loads((tmp_path / "figure7.json").read_text(encoding="utf-8"))
    assert result["command"].startswith("bppsa-reproduce figure7 --data")
    for dtype in ("float64", "float32"):
        runs = result["curves"][dtype]
        assert set(runs) == {"PyTorch", "auto", "blelloch"}
        assert all(len(run["losses"]) == 25 and len(run["seconds"]) == 1 for run in runs.values())
        assert "chunk" in runs["blelloch"]["backward"][0]
        assert result["comparison"][dtype]["difference"]["auto"] < (1e-12 if dtype == "float64" else 1e-4)
    assert (tmp_path / "figure7.png").read_bytes().startswith(b"\x89PNG")
    assert "float64 auto: largest relative difference to PyTorch" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_figure13(tmp_path, capsys):
    padded, bits = write_padded(tmp_path / "padded.h5"), write_bits(tmp_path / "bits.h5")
    line = ["figure13", "--data", str(padded), str(bits), "--out", str(tmp_path)]
    assert main([*line, "--epochs", "2", "--device", "host"]) == 0
    rows = json.loads((tmp_path / "figure13.json").read_text(encoding="utf-8"))["rows"]
    assert [(row["data"]["name"], row["data"]["dtype"]) for row in rows] == [
        (name, dtype) for name in ("padded", "bits") for dtype in ("float64", "float32")
    ]
    for row in rows:
        limit = 1e-9 if row["data"]["dtype"] == "float64" else 1e-3
        assert max(row["comparison"]["difference"].values()) < limit
        assert row["curves"]["auto"]["test_accuracy"] == row["curves"]["PyTorch"]["test_accuracy"]
        assert ("linear_accuracy" in row["data"]) == (row["data"]["name"] == "padded")
    assert 0.3 < rows[0]["data"]["linear_accuracy"] <= 1
    assert "a linear model on the features' means" in capsys.readouterr().out


# ---- images by us and by PyTorch ----


def with_dropout(seed, **options):
    """Dropout, batch normalisation, and a shortcut with parameters."""
    body = [bp.Conv2d(4, 6, 3, 2, 1), bp.BatchNorm2d(6)]
    layers = [
        bp.Conv2d(3, 4, 5, 4), bp.ReLU(), bp.Dropout(0.3), bp.Residual(body, [bp.Conv2d(4, 6, 1, 2)]),
        bp.AdaptiveAvgPool2d(1), bp.Flatten(), bp.Dropout(0.5), bp.Linear(6, 10),
    ]  # fmt: skip
    return bp.Sequential(layers, input_shape=(3, 32, 32), seed=seed, **options)


@pytest.mark.usefixtures("pytorch")
@pytest.mark.parametrize("make", some(with_dropout, long=[partial(resnet, 8)]), ids=["dropout", "resnet8"])
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [(bp.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-2}), (bp.AdamW, {"lr": 0.01})],
    ids=["sgd", "adamw"],
)
def test_training_is_pytorchs(images, make, optimizer, options):
    """Losses, evaluations by epoch, parameters and running statistics; an epoch's last batch is short."""
    dataset = load(images)
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


@pytest.mark.usefixtures("pytorch")
def test_the_network_that_is_copied_stays_as_it_is(images):
    net = with_dropout(0, device="host").eval()
    before = net.state_dict()
    settings = Settings(iterations=2, batch_size=8, seed=3)
    curve = train_by_torch(net, load(images), settings, bp.SGD, lr=0.1)
    assert all(np.array_equal(before[name], array) for name, array in net.state_dict().items())
    assert any(not np.array_equal(before[name], array) for name, array in curve.state.items())


@pytest.mark.usefixtures("pytorch")
def test_dropout_inside_of_a_block_is_refused(images):
    block = bp.Residual([bp.Flatten(), bp.Dropout()], [bp.Flatten()])
    net = bp.Sequential([block, bp.Linear(3072, 10)], input_shape=(3, 32, 32), device="host")
    with pytest.raises(bp.BppsaError, match="Dropout inside of Residual"):
        train_by_torch(net, load(images), Settings(), bp.SGD, lr=0.1)


@pytest.mark.usefixtures("pytorch")
def test_resnet20(images, tmp_path, capsys):
    line = ["resnet20", "--model", "lenet5", "--data", str(images), "--out", str(tmp_path), "--epochs", "2",
            "--batch-size", "8", "--lr-schedule", "warmup:2,cosine", "--augment", "crop-flip",
            "--seed", "4", "5", "--threads", "1", "--device", "host"]  # fmt: skip
    assert main(line) == 0
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


@pytest.mark.usefixtures("pytorch")
def test_our_curve_is_that_of_bppsa_train(images, tmp_path):
    shared = ["--data", str(images), "--epochs", "2", "--batch-size", "8", "--lr", "0.1", "--lr-schedule",
              "cosine", "--augment", "crop-flip", "--seed", "3", "--device", "host"]  # fmt: skip
    assert main(["resnet20", "--model", "lenet5", "--out", str(tmp_path), *shared]) == 0
    log = tmp_path / "log.jsonl"
    assert train_tool.main(["lenet5", "--weight-decay", "0.0001", "--log", str(log), *shared]) == 0
    rows = [json.loads(row) for row in log.read_text(encoding="utf-8").splitlines()]
    result = json.loads((tmp_path / "lenet5.json").read_text(encoding="utf-8"))
    ours = result["rows"][0]["curves"]["ours"]
    np.testing.assert_allclose(ours["losses"], [row["loss"] for row in rows], rtol=1e-8)
    accuracies = [row["test_accuracy"] for row in rows if "test_accuracy" in row]
    assert ours["test_accuracies"] == accuracies and len(accuracies) == 2


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_buffers_are_compared_and_a_test_set_is_not_needed(images, tmp_path, capsys):
    """A model of the user's own names the files by its factory."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "data_batch_1.bin").write_bytes((images / "data_batch_1.bin").read_bytes())
    model = tmp_path / "mine.py"
    model.write_text("from bppsa_cupy.models import resnet\nsmall = resnet.of_depth(8)\n", encoding="utf-8")
    line = ["resnet20", "--model", f"{model}:small", "--data", str(tmp_path / "images"),
            "--out", str(tmp_path), "--batch-size", "11", "--iterations", "1"]  # fmt: skip
    assert main(line) == 0
    result = json.loads((tmp_path / "small.json").read_text(encoding="utf-8"))
    assert set(result["first_steps"]["float64"]["difference"]) == {"losses", "parameters", "buffers"}
    assert "accuracy" not in result["rows"][0]["comparison"]
    assert "accuracy" not in capsys.readouterr().out


@pytest.mark.usefixtures("pytorch")
def test_a_network_that_differs_is_told(images, tmp_path, monkeypatch, capsys):
    """PyTorch's side with another momentum: the second loss differs."""
    theirs = torch_training.train_by_torch
    changed = {"momentum": 0.0, "weight_decay": 0.3}
    monkeypatch.setattr(
        torch_training, "train_by_torch", lambda *args, **options: theirs(*args, **{**options, **changed})
    )
    line = ["resnet20", "--model", "lenet5", "--data", str(images), "--out", str(tmp_path),
            "--batch-size", "8", "--iterations", "3", "--lr", "0.1", "--device", "host"]  # fmt: skip
    assert main(line) == 0
    assert "DIFFERS" in capsys.readouterr().out


@pytest.mark.usefixtures("pytorch")
def test_curves_in_numbers():
    ours = Curve([2.0, 1.0, 0.5], evaluations=[(1.0, 0.25), (1.0, 0.5)])
    theirs = Curve([2.0, 1.001, 0.51], evaluations=[(1.0, 0.5), (1.0, 0.48)])
    found = compare_runs({"ours": ours, PYTORCH: theirs})
    assert found["first_loss"] == {PYTORCH: 0} and found["step_beyond_1_percent"] == {PYTORCH: 3}
    assert found["accuracy"] == {"ours": 0.5, PYTORCH: 0.48}
    assert found["points_from_ours"][PYTORCH] == pytest.approx(-2)
    assert compare_runs({"ours": ours, PYTORCH: ours})["step_beyond_1_percent"] == {PYTORCH: None}


def test_without_pytorch_it_says_so(images, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["resnet20", "--data", str(images), "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: the comparison takes PyTorch") and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


# ---- forgetting ----


@pytest.fixture
def bitstreams(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--length", "12", "--samples", "30", "--test-samples", "20", "-o", "bits.h5"]
    assert data_tool.main(["bitstream", *options]) == 0
    return tmp_path


@pytest.mark.parametrize("cell", CELLS)
def test_each_gate_gets_the_radius(cell):
    net = build_model(cell, (5, 2), hidden_size=6, device="host", dtype="float64")
    before = net.state_dict()
    set_radius(net, 1.25)
    after = net.state_dict()
    for name, weight in after.items():
        if name != "0.weight_hh_l0":
            np.testing.assert_array_equal(weight, before[name])
    for block, was in zip(*(s["0.weight_hh_l0"].reshape(-1, 6, 6) for s in (after, before)), strict=True):
        assert np.abs(np.linalg.eigvals(block)).max() == pytest.approx(1.25)
        np.testing.assert_allclose(block / was, (block / was)[0, 0], rtol=1e-12)


def test_norms_are_counted_from_each_samples_end():
    net = bp.Sequential([bp.GRU(2, 3, outputs="last")], (9, 2), dtype="float64", device="host")
    x = np.random.default_rng(0).standard_normal((4, 9, 2))
    net.forward(x, lengths=[9, 4, 6, 7])
    chain = net.transposed_jacobians()
    found = norms_back(chain)
    assert len(found) == 6 and found[0] == 0
    for back, lengths in ((1, [9, 4, 6, 7]), (4, [9, None, 6, 7])):
        norms = [
            bp.span_product(chain.sample(k).where(steps=range(length - back, length))).log_norm[0]
            for k, length in enumerate(lengths)
            if length
        ]
        assert found[back] == pytest.approx(np.median(norms) / np.log(10), abs=6e-4)


def test_forgetting(bitstreams, capsys):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    options = "--radii 0.5,2 --hidden-size 4 --sequences 6 --seeds 2 --epochs 1 --device host".split()
    assert main(["forgetting", "--data", "bits.h5", "--out", "out", *options]) == 0
    result = json.loads((bitstreams / "out" / "forgetting.json").read_text(encoding="utf-8"))
    assert result["command"] == " ".join(["bppsa-reproduce forgetting --data bits.h5 --out out", *options])
    assert [(row["cell"], row["radius"]) for row in result["rows"]] == [
        (cell, radius) for cell in CELLS for radius in (0.5, 2)
    ]
    for row in result["rows"]:
        assert len(row["exponents"]) == len(row["trained_exponents"]) == len(row["accuracies"]) == 2
        assert row["exponents"] != row["trained_exponents"] and len(row["log10_norms"]) == 12
    small, large = result["rows"][:2]
    assert small["exponents"][0] < large["exponents"][0]
    assert (bitstreams / "out" / "forgetting.png").read_bytes()[:4] == b"\x89PNG"
    assert "rnn 0.5: largest Lyapunov exponent -" in capsys.readouterr().out


def test_what_forgetting_does_not_take(bitstreams, capsys):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    np.savez("flat.npz", x=np.zeros((6, 4), np.float32), y=np.arange(6) % 2)
    assert main(["forgetting", "--data", "flat.npz", "--out", "out"]) == 1
    assert "the figure takes sequences (T, F) with a label each" in capsys.readouterr().err
    for radii in ("0,1", "a", "", "1,inf"):
        with pytest.raises(SystemExit) as end:
            main(["forgetting", "--data", "bits.h5", "--radii", radii])
        assert end.value.code == 2

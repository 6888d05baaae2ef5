"""Recurrent models on files of sequences: PyTorch's curve, lengths, clipping, command line."""

import json

import numpy as np
import pytest
from marks import some
from sequence_cases import CLASSES, FEATURES, STEPS, write_bits, write_padded
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.data import batches, load
from bppsa_cupy.models import build_model
from bppsa_cupy.tools import train as train_tool
from bppsa_cupy.tools.reproduction.torch_training import train_by_torch
from bppsa_cupy.training.loop import evaluate, train
from bppsa_cupy.training.settings import Settings

MODELS = ("rnn", "gru", "lstm")


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
    return write_padded(tmp_path_factory.mktemp("sequences") / "padded.h5")


@pytest.fixture(scope="module")
def bits(tmp_path_factory):
    return write_bits(tmp_path_factory.mktemp("sequences") / "bits.h5")


def network_of(model, dataset, dtype="float64", seed=0):
    return build_model(
        model, dataset.input_shape, classes=dataset.classes, seed=seed, dtype=dtype, device="host"
    )


# ---- models ----


@pytest.mark.parametrize(("model", "gates"), [("rnn", 1), ("gru", 3), ("lstm", 4)])
def test_the_models_of_the_paper(model, gates):
    net = build_model(model, input_shape=(9, 5), classes=7, device="host")
    shapes = {name: array.shape for name, array in net.parameters.items()}
    assert shapes == {
        "0.weight_ih_l0": (20 * gates, 5),
        "0.weight_hh_l0": (20 * gates, 20),
        "0.bias_ih_l0": (20 * gates,),
        "0.bias_hh_l0": (20 * gates,),
        "1.weight": (7, 20),
        "1.bias": (7,),
    }
    assert net.output_shape == (7,)
    with pytest.raises(bp.ShapeError, match=r"takes sequences \(T, F\)"):
        build_model(model, input_shape=(3, 32, 32), device="host")


def test_sizes_of_the_paper_are_the_defaults():
    assert build_model("rnn", device="host").input_shape == (1000, 1)
    for model in ("gru", "lstm"):
        net = build_model(model, device="host")
        assert (net.input_shape, net.output_shape) == ((517, 24), (11,))


# ---- training ----


@pytest.mark.usefixtures("pytorch")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("name", "clip"), [("bits", None), ("padded", 0.5)])
def test_the_curve_is_pytorchs(request, model, name, clip):
    dataset = load(request.getfixturevalue(name))
    settings = Settings(epochs=3, batch_size=8, seed=2, clip=clip)
    theirs = train_by_torch(network_of(model, dataset), dataset, settings, bp.Adam, lr=0.01)
    net = network_of(model, dataset)
    history = train(net, dataset, bp.Adam(net.parameters, lr=0.01), settings)
    np.testing.assert_allclose(history.losses, theirs.losses, rtol=1e-9)
    assert history.evaluations()[-1]["test_accuracy"] == theirs.accuracy


def test_clipping_changes_training_and_bounds_the_gradients(bits):
    dataset = load(bits)
    norms = []

    class Watched(bp.SGD):
        def step(self, gradients):
            norms.append(float(np.linalg.norm(gradients.flat)))
            super().step(gradients)

    for clip in (None, 0.05):
        net = network_of("rnn", dataset)
        settings = Settings(epochs=1, batch_size=8, clip=clip)
        history = train(net, dataset, Watched(net.parameters, lr=0.1), settings)
        assert all(("gradient_norm" in row) == (clip is not None) for row in history.rows)
    free, clipped = norms[:5], norms[5:]
    assert history.rows[0]["gradient_norm"] == pytest.approx(free[0], rel=1e-6)
    assert max(free) > 0.05 and max(clipped) <= 0.05 * (1 + 1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_what_is_padded_does_not_matter(padded, model):
    dataset = load(padded)
    (batch,) = batches(dataset.test, 14, shuffle=False, dtype=np.float64)
    net = network_of(model, dataset)
    scores = np.array(net.forward(batch.inputs, lengths=batch.lengths))
    other = batch.inputs.copy()
    other[np.arange(STEPS) >= batch.lengths[:, None]] = -7
    np.testing.assert_array_equal(net.forward(other, lengths=batch.lengths), scores)
    for sample, length in enumerate(batch.lengths):
        alone = build_model(model, (int(length), FEATURES), classes=CLASSES, dtype="float64", device="host")
        alone.load_state_dict(net.state_dict())
        assert_close(alone.forward(batch.inputs[sample : sample + 1, :length])[0], scores[sample], STEPS)
    loss, accuracy = evaluate(net, dataset.test, 5)
    expected, _ = bp.cross_entropy(scores, batch.labels)
    assert loss == pytest.approx(float(expected))
    assert accuracy == np.mean(scores.argmax(1) == batch.labels)


# ---- the command line ----


@pytest.mark.parametrize("model", some("rnn", "gru", long=["lstm"]))
def test_train_logs_evaluates_and_resumes(padded, tmp_path, monkeypatch, capsys, model):
    monkeypatch.chdir(tmp_path)
    line = [model, "--data", str(padded), "--device", "host", "--optimizer", "adam", "--lr", "0.05",
            "--clip", "1", "--batch-size", "8"]  # fmt: skip
    assert train_tool.main([*line, "--epochs", "12", "--log", "whole.jsonl"]) == 0
    assert train_tool.main([*line, "--epochs", "5", "--log", "log.jsonl", "--checkpoint", "c.h5"]) == 0
    assert train_tool.main([*line, "--epochs", "12", "--log", "log.jsonl", "--resume", "c.h5"]) == 0
    assert "test accuracy" in capsys.readouterr().out
    whole, log = ((tmp_path / name).read_text(encoding="utf-8") for name in ("whole.jsonl", "log.jsonl"))
    assert log == whole
    rows = [json.loads(row) for row in whole.splitlines()]
    assert len(rows) == 12 * 4 and rows[-1]["loss"] < 0.7 * rows[0]["loss"]
    assert rows[-1]["test_accuracy"] > 0.4


def test_a_network_of_other_classes_or_features_is_refused(bits, padded, capsys):
    assert train_tool.main(["rnn", "--data", str(bits), "--device", "host", "--classes", "3"]) == 1
    assert "bits has 10 classes" in capsys.readouterr().err
    assert train_tool.main(["gru", "--data", str(padded), "--device", "host", "--input-shape", "12,4"]) == 1
    assert "padded holds inputs of shape (12, 3)" in capsys.readouterr().err
    assert train_tool.main(["rnn", "--data", str(bits), "--device", "host", "--clip", "0"]) == 1
    assert "it takes a number above 0" in capsys.readouterr().err


def test_what_ran_is_told_and_logged_once(bits, tmp_path, capsys):
    log = tmp_path / "log.jsonl"
    line = ["rnn", "--data", str(bits), "--device", "host", "--method", "blelloch", "--hidden-size", "5",
            "--num-layers", "2", "--bidirectional", "--forward-method", "newton", "--batch-size", "8",
            "--epochs", "1", "--log", str(log)]  # fmt: skip
    assert train_tool.main(line) == 0
    out = capsys.readouterr().out
    first, *others = [json.loads(row) for row in log.read_text(encoding="utf-8").splitlines()]
    ran = first["ran"]
    assert (ran["method"], ran["schedules"]) == ("blelloch", [])
    names = [f"0 RNN {name}: " for name in ("l0", "l0_reverse", "l1", "l1_reverse")]
    for kind, way, said in (("forward_ways", "newton", "forward"), ("backward_ways", "chunked", "backward")):
        assert [line.startswith(name + way) for line, name in zip(ran[kind], names, strict=True)] == [
            True
        ] * 4
        assert all(f"{said} over time: {name}{way}" in out for name in names)
    assert others and not any("ran" in row for row in others)


def test_recurrent_options_are_of_recurrent_models(bits, capsys):
    assert train_tool.main(["lenet5", "--data", "digits", "--device", "host", "--num-layers", "2"]) == 1
    read = capsys.readouterr()
    assert "--num-layers is of recurrent models, and 'lenet5' takes no num_layers" in read.err
    assert read.out == ""

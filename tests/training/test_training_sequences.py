"""Recurrent models on files of sequences: PyTorch's curve, lengths, clipping, command line."""

import numpy as np
import pytest
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.data import batches, load
from bppsa_cupy.data.dataset import Split
from bppsa_cupy.data.sequences import Sequences, make_bitstreams, write_sequences
from bppsa_cupy.models import build_model
from bppsa_cupy.tools.reproduction.torch_training import train_by_torch
from bppsa_cupy.training.loop import evaluate, train
from bppsa_cupy.training.settings import Settings

MODELS = ("rnn", "gru", "lstm")
STEPS, FEATURES, CLASSES = 12, 3, 4


def write_padded(path):
    """30 training and 14 test sequences of 1 to 12 steps, each class with a mean of its own."""
    rng = np.random.default_rng(3)

    def raw(count):
        labels = np.arange(count) % CLASSES
        lengths = rng.integers(1, STEPS + 1, count)
        lengths[0] = STEPS
        inputs = rng.standard_normal((count, STEPS, FEATURES)).astype(np.float32)
        inputs[..., 0] += 3 * labels[:, None]
        inputs[np.arange(STEPS) >= lengths[:, None]] = 1e4
        return Split(inputs, labels, None, lengths, "made")

    write_sequences(path, Sequences("padded", raw(30), raw(14), tuple("abcd")))
    return path


def write_bits(path):
    """40 training and 16 test bitstreams of 20 bits."""
    splits = make_bitstreams(20, 40), make_bitstreams(20, 16, split=1)
    write_sequences(path, Sequences("bits", *splits, tuple("0123456789")))
    return path


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
    assert history.evaluations()[-1]["test_accuracy"] == theirs.evaluations[-1][1]


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

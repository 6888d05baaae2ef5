"""Batches hold every sample once, in an order that seed and epoch determine, and resume at any step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import assert_refused

from bppsa_cupy.data import Normalization, Split, batches, number_of_batches
from bppsa_cupy.errors import DataError

SIZES = {"size": st.integers(1, 40), "batch_size": st.integers(1, 50)}


def split_of(size, normalization=None):
    """Samples whose input tells their number."""
    return Split(np.arange(size, dtype=np.float32).reshape(size, 1), np.arange(size), normalization)


def order(split, batch_size, **options):
    return [labels.tolist() for _, labels, _ in batches(split, batch_size, **options)]


@given(**SIZES, seed=st.integers(0, 2**32), epoch=st.integers(0, 1000), shuffle=st.booleans())
def test_every_sample_comes_once(size, batch_size, seed, epoch, shuffle):
    split = split_of(size)
    result = list(batches(split, batch_size, seed=seed, epoch=epoch, shuffle=shuffle))
    lengths = [len(labels) for _, labels, _ in result]
    assert len(result) == number_of_batches(split, batch_size)
    assert all(length == batch_size for length in lengths[:-1])
    assert sorted(np.concatenate([labels for _, labels, _ in result])) == list(range(size))
    for inputs, labels, _ in result:
        np.testing.assert_array_equal(inputs[:, 0], labels)


@given(**SIZES, epoch=st.integers(0, 3), data=st.data())
def test_an_epoch_resumes_at_any_step(size, batch_size, epoch, data):
    split = split_of(size)
    start = data.draw(st.integers(0, number_of_batches(split, batch_size)))
    full = order(split, batch_size, seed=5, epoch=epoch)
    assert order(split, batch_size, seed=5, epoch=epoch, start=start) == full[start:]


def test_batches_do_not_share_memory_with_the_split():
    split = split_of(4)
    for inputs, labels, _ in batches(split, 4, shuffle=False):
        inputs[:] = -1
        labels[:] = -1
    np.testing.assert_array_equal(split.labels, np.arange(4))
    np.testing.assert_array_equal(split.inputs[:, 0], np.arange(4))


@pytest.mark.parametrize("shuffle", [False, True])
def test_lengths_go_with_their_samples(shuffle):
    split = Split(np.zeros((7, 9, 2), np.float32), np.arange(7), None, lengths=np.arange(1, 8))
    result = list(batches(split, 3, shuffle=shuffle))
    assert len(result) == 3
    for batch in result:
        np.testing.assert_array_equal(batch.lengths, batch.labels + 1)
        batch.lengths[:] = 0
    np.testing.assert_array_equal(split.lengths, np.arange(1, 8))
    (plain,) = batches(split_of(4), 4)
    assert plain.lengths is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shape", "axes"), [((3, 4, 5), (0, 2, 3)), ((6, 2), (0, 1)), ((7,), (0, 1))])
@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_normalised_inputs_have_zero_mean_and_unit_deviation(dtype, shape, axes, kind):
    generator = np.random.default_rng(0)
    inputs = generator.integers(0, 256, (50, *shape)).astype(kind)
    split = Split(inputs, np.zeros(50, int), Normalization.measured(inputs))
    values = np.concatenate([x for x, _, _ in batches(split, 16, dtype=dtype)])
    assert values.dtype == dtype
    np.testing.assert_allclose(values.mean(axes, np.float64), 0, atol=1e-6)
    np.testing.assert_allclose(values.std(axes, np.float64), 1, rtol=1e-6)


def test_a_constant_channel_keeps_its_scale():
    assert Normalization.measured(np.full((3, 4), 7.0)) == Normalization((7.0,), (1.0,))


@pytest.mark.parametrize("options, named", [
    ({"batch_size": 0}, "batch_size=0"), ({"seed": 1.5}, "seed=1.5"), ({"epoch": -1}, "epoch=-1"),
    ({"start": 4}, "start=4"), ({"augment": "mixup"}, "'mixup'"),
    ({"augment": "crop-flip"}, "(1,)"),
])  # fmt: skip
def test_wrong_requests_are_refused(options, named):
    assert_refused(lambda: batches(split_of(5), **{"batch_size": 2, **options}), DataError, named)

"""Bitstreams follow the paper's equation 8 and their seed; files of sequences come back as written."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_cases import edited
from refusals import assert_refused

from bppsa_cupy.data import load
from bppsa_cupy.data.dataset import Split
from bppsa_cupy.data.sequences import Sequences, make_bitstreams, read_sequences, write_sequences
from bppsa_cupy.errors import DataError

# ---- equation 8 ----


def test_bits_are_bernoulli_of_their_class():
    raw = make_bitstreams(400, 2000, seed=1)
    assert raw.inputs.shape == (2000, 400, 1) and raw.inputs.dtype == np.uint8
    assert set(np.unique(raw.inputs)) == {0, 1} and set(raw.labels) == set(range(10))
    for label in range(10):
        bits = raw.inputs[raw.labels == label]
        expected = 0.05 + 0.1 * label
        # Five standard deviations of the mean.
        assert abs(bits.mean() - expected) < 5 * np.sqrt(expected * (1 - expected) / bits.size)
    counts = np.bincount(raw.labels, minlength=10)
    assert (abs(counts - 200) < 5 * np.sqrt(200)).all()


@given(
    length=st.integers(1, 40), samples=st.integers(1, 20), seed=st.integers(0, 2**40), part=st.integers(0, 1)
)
def test_more_samples_and_longer_ones_begin_with_the_same_bits(length, samples, seed, part):
    small = make_bitstreams(length, samples, seed=seed, split=part)
    large = make_bitstreams(length + 3, samples + 2, seed=seed, split=part)
    np.testing.assert_array_equal(large.inputs[:samples, :length], small.inputs)
    np.testing.assert_array_equal(large.labels[:samples], small.labels)


def test_seeds_and_parts_differ_and_the_bits_are_fixed():
    first, other, test = (
        make_bitstreams(30, 20, seed=s, split=p).inputs.tobytes() for s, p in ((0, 0), (1, 0), (0, 1))
    )
    assert len({first, other, test}) == 3
    raw = make_bitstreams(12, 3, seed=0)
    assert raw.labels.tolist() == [1, 2, 6]
    bits = ["".join(map(str, row)) for row in raw.inputs[..., 0]]
    assert bits == ["011000000010", "000111100000", "100010110010"]


# ---- the file ----


def sequences_of(lengths=None, test=True, dtype=np.float32):
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 200, (6, 5, 2)).astype(dtype)
    train = Split(inputs, np.arange(6) % 3, None, lengths, "made")
    held = Split(inputs[:2] + 1, np.array([2, 0]), lengths=None if lengths is None else lengths[:2])
    return Sequences("some", train, held if test else None, ("a", "b", "c"), origin={"seed": 7})


LENGTHS = np.array([5, 1, 3, 5, 2, 4])


@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("test", [True, False])
def test_a_file_comes_back_as_written(tmp_path, lengths, dtype, test):
    written = sequences_of(lengths, dtype=dtype, test=test)
    write_sequences(tmp_path / "s.h5", written, compress=dtype == np.uint8)
    loaded = read_sequences(tmp_path / "s.h5")
    assert (loaded.name, loaded.class_names, loaded.origin) == ("some", ("a", "b", "c"), {"seed": 7})
    assert (loaded.test is None) == (not test)
    for ours, theirs in ((loaded.train, written.train), (loaded.test, written.test)):
        if theirs is not None:
            assert ours.inputs.dtype == dtype
            np.testing.assert_array_equal(ours.inputs, theirs.inputs)
            np.testing.assert_array_equal(ours.labels, theirs.labels)
            np.testing.assert_array_equal(ours.lengths, theirs.lengths)


def put(file, name, array):
    del file[name]
    file[name] = array


DAMAGES = [
    (lambda f: f.attrs.update(format="bppsa-plan"), "'bppsa-plan'"),
    (lambda f: f.attrs.update(normalization="train"), "'train'"),
    (lambda f: put(f, "train/inputs", np.full((6, 5, 2), np.nan, np.float32)), "NaN"),
    (lambda f: put(f, "train/labels", np.arange(6)), "label 3"),
    (lambda f: put(f, "train/lengths", np.array([5, 0, 3, 5, 2, 4])), "length 0"),
    (lambda f: put(f, "train/lengths", np.array([5, 1, 6, 5, 2, 4])), "length 6"),
    (lambda f: put(f, "test/inputs", np.zeros((2, 5, 3), np.float32)), "differ only in N"),
]


@pytest.mark.parametrize("change, named", DAMAGES)
def test_what_does_not_fit_is_refused(tmp_path, change, named):
    write_sequences(tmp_path / "good.h5", sequences_of(LENGTHS))
    path = edited(tmp_path / "good.h5", tmp_path / "bad.h5", change)
    assert_refused(lambda: load(path), DataError, named, "bad.h5")

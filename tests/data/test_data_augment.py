"""Random crops and flips: every image is a crop of the padded one, by seed, epoch and sample alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bppsa_cupy.data import Split, batches
from bppsa_cupy.errors import DataError
from bppsa_cupy.training.loop import ahead


def split_of(samples, shape=(2, 5, 7), normalization=None):
    """Images whose pixels all differ, and that are labelled with their numbers; no pixel is 0."""
    pixels = 1 + np.arange(samples * np.prod(shape), dtype=np.float32).reshape(samples, *shape)
    return Split(pixels, np.arange(samples), normalization)


def by_sample(split, **options):
    augmented = [batch for batch in batches(split, augment="crop-flip", **options)]
    labels = np.concatenate([batch.labels for batch in augmented])
    return np.concatenate([batch.inputs for batch in augmented])[np.argsort(labels)]


@given(
    seed=st.integers(0, 2**32), epoch=st.integers(0, 99), height=st.integers(1, 9), width=st.integers(1, 9)
)
def test_every_image_is_a_crop_of_the_padded_one(seed, epoch, height, width):
    split = split_of(12, (2, height, width))
    for original, changed in zip(
        split.inputs, by_sample(split, batch_size=5, seed=seed, epoch=epoch), strict=True
    ):
        padded = np.pad(original, ((0, 0), (4, 4), (4, 4)))
        crops = [padded[:, y : y + height, x : x + width] for y in range(9) for x in range(9)]
        assert any(np.array_equal(changed, turned) for crop in crops for turned in (crop, crop[:, :, ::-1]))


@given(batch_size=st.integers(1, 20), start=st.integers(0, 3), dtype=st.sampled_from(["float32", "float64"]))
def test_what_is_done_to_a_sample_does_not_follow_from_its_batch(batch_size, start, dtype):
    split = split_of(17)
    expected = by_sample(split, batch_size=17, seed=3, epoch=2)
    for shuffle in (False, True):
        options = {"shuffle": shuffle, "seed": 3, "epoch": 2, "dtype": dtype, "augment": "crop-flip"}
        start = min(start, -(-17 // batch_size))
        for batch in batches(split, batch_size, start=start, **options):
            np.testing.assert_array_equal(batch.inputs, expected[batch.labels])
    assert not np.array_equal(expected, by_sample(split, batch_size=17, seed=3, epoch=3))
    assert not np.array_equal(expected, by_sample(split, batch_size=17, seed=4, epoch=2))


# ---- loading beside computing ----


def test_an_error_comes_in_the_place_of_its_item():
    def source():
        yield 1
        raise DataError("sample 2 is bad")

    items = ahead(source())
    assert next(items) == 1
    with pytest.raises(DataError, match="sample 2 is bad"):
        next(items)

"""Batches of a split, in an order and with random changes that a seed and an epoch determine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.arguments import as_flag, as_instance, as_integer, is_one_of
from bppsa_cupy.data.dataset import Split
from bppsa_cupy.errors import DataError

#: What `Augmentation` knows.
AUGMENTATIONS = ("crop-flip",)
#: Pixels of zeros on each side of an image, in which a crop of its own size lies.
PADDING = 4
#: Tells these random numbers from those of the order, which follow from seed and epoch.
_STREAM = 1


class Batch(NamedTuple):
    """A batch of samples.

    inputs   (B, *input_shape), normalised
    labels   (B,) int64, or (B, T) with one a step
    lengths  (B,) int64, steps that are no padding; None where all samples have all steps
    """

    inputs: np.ndarray
    labels: np.ndarray
    lengths: np.ndarray | None

    @property
    def label_lengths(self) -> np.ndarray | None:
        """The lengths of the labels, as losses take them; None with one label a sample."""
        return self.lengths if self.labels.ndim == 2 else None


def number_of_batches(split: Split, batch_size: int) -> int:
    """The number of batches of one epoch, the last smaller one included."""
    as_instance("batches", "split", split, Split, "a Split, as dataset.train", error=DataError)
    return -(-len(split) // as_integer("batches", "batch_size", batch_size, 1, error=DataError))


def batches(
    split: Split,
    batch_size: int,
    *,
    seed: int = 0,
    epoch: int = 0,
    shuffle: bool = True,
    start: int = 0,
    dtype: Any = np.float32,
    augment: str | None = None,
    samples: Callable[[int], slice] | None = None,
) -> Iterator[Batch]:
    """One epoch of batches, their inputs of `dtype`.

    Every sample comes once; the last batch may be smaller. The order follows from (seed, epoch) and the
    number of samples alone, so `start` (the number of batches to leave out) resumes an epoch exactly
    where it stopped. Each batch is a copy; the split is only read. Raises DataError for a
    batch size below 1, and for seed and epoch below 0.

    samples  which ones of a batch of so many are read (`net.own_samples`), by default all; the inputs of
             others are 0, labels and lengths are there of all
    augment  one of AUGMENTATIONS, by the same seed and epoch; None leaves samples as they are
    """
    count = number_of_batches(split, batch_size)
    seed, epoch = (
        as_integer("batches", name, value, 0, None, error=DataError)
        for name, value in (("seed", seed), ("epoch", epoch))
    )
    shuffle = as_flag("batches", "shuffle", shuffle, error=DataError)
    start = as_integer("batches", "start", start, 0, count, error=DataError)
    if not isinstance(dtype, (str, type, np.dtype)) or dtype not in (np.dtype("f4"), np.dtype("f8")):
        raise DataError(f"batches got dtype={dtype!r}: it takes float32 or float64")
    changes = None if augment is None else Augmentation(augment, split, seed, epoch)
    order = np.random.default_rng((seed, epoch)).permutation(len(split)) if shuffle else None
    return _batches(split, batch_size, order, range(start, count), np.dtype(dtype), changes, samples)


def _batches(
    split: Split,
    size: int,
    order: np.ndarray | None,
    steps: range,
    dtype: np.dtype,
    changes: Augmentation | None,
    samples: Callable[[int], slice] | None,
) -> Iterator[Batch]:
    for step in steps:
        first, stop = step * size, min((step + 1) * size, len(split))
        chosen: Any = slice(first, stop) if order is None else order[first:stop]
        part = slice(0, stop - first) if samples is None else samples(stop - first)
        read = slice(first + part.start, first + part.stop) if order is None else chosen[part]
        inputs = split.inputs[read]
        if changes is not None:
            inputs = changes.apply(inputs, np.arange(len(split))[read])
        if split.normalization is None:
            inputs = inputs.astype(dtype)
        else:
            inputs = split.normalization.apply(inputs, dtype)
        if len(inputs) < stop - first:
            whole = np.zeros(
                (stop - first, *inputs.shape[1:]), dtype
            )  # pages that nobody touches take no memory
            whole[part] = inputs
            inputs = whole
        lengths = None if split.lengths is None else split.lengths[chosen].copy()
        yield Batch(inputs, split.labels[chosen].copy(), lengths)


class Augmentation:
    """One epoch's changes of the samples of a split: "crop-flip" pads images by 4 pixels of zeros, before
    they are normalised, crops them at random to their size and flips every other one, left to right, as
    torchvision's RandomCrop(size, padding=4) and RandomHorizontalFlip do (He et al. 2016, section 4.2).

    What is done to a sample follows from the seed, the epoch and its number in the split alone: the same on
    every device, whatever the batch, and after a resume. Raises DataError for another name, and for samples
    that are no images (C, H, W).
    """

    def __init__(self, name: str, split: Split, seed: int, epoch: int) -> None:
        check_augmentation(name)
        shape = split.inputs.shape[1:]
        if len(shape) != 3:
            raise DataError(f"{name} was asked for, and the samples are {shape}: it takes images (C, H, W)")
        draws = np.random.default_rng((seed, epoch, _STREAM))
        self._corners = draws.integers(0, 2 * PADDING + 1, (len(split), 2))
        self._flipped = draws.integers(0, 2, len(split)).astype(bool)

    def apply(self, inputs: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """A changed copy of `inputs`, (B, C, H, W): samples `chosen` (B,) of the split."""
        height, width = inputs.shape[2:]
        padded = np.pad(inputs, ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING)))
        result = np.empty_like(inputs)
        for image, whole, sample in zip(result, padded, chosen, strict=True):
            top, left = self._corners[sample]
            crop = whole[:, top : top + height, left : left + width]
            image[...] = crop[:, :, ::-1] if self._flipped[sample] else crop
        return result


def check_augmentation(name: str) -> None:
    """Raise DataError where there is no augmentation of this name."""
    if not is_one_of(name, AUGMENTATIONS):
        raise DataError(f"the augmentation {name!r} was asked for: there is {', '.join(AUGMENTATIONS)}")

"""Batches of a split, in an order that a seed and an epoch determine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.arguments import as_flag, as_instance, as_integer
from bppsa_cupy.data.augment import Augmentation
from bppsa_cupy.data.dataset import Split
from bppsa_cupy.errors import DataError


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
    augment  one of data.augment.AUGMENTATIONS, by the same seed and epoch; None leaves samples as they are
    """
    count = number_of_batches(split, batch_size)
    seed, epoch = (
        as_integer("batches", name, value, 0, None, error=DataError)
        for name, value in (("seed", seed), ("epoch", epoch))
    )
    shuffle = as_flag("batches", "shuffle", shuffle, error=DataError)
    try:
        start = as_integer("batches", "start", start, 0, count, error=DataError)
    except DataError as refused:
        raise DataError(
            f"batch {start!r} was asked for: an epoch of {len(split)} samples has {count} of them"
        ) from refused
    changes = None
    if augment is not None:
        changes = Augmentation(augment, len(split), split.inputs.shape[1:], seed, epoch)
    steps, real = range(start, count), _real_dtype(dtype)
    return _batches(split, batch_size, seed, epoch, shuffle, steps, real, changes, samples)


def _real_dtype(dtype: Any) -> np.dtype:
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError):
        found = None
    if found not in (np.float32, np.float64):
        raise DataError(f"batches got dtype={dtype!r}: it takes float32 or float64")
    return found


def _batches(
    split: Split,
    size: int,
    seed: int,
    epoch: int,
    shuffle: bool,
    steps: range,
    dtype: np.dtype,
    changes: Augmentation | None,
    samples: Callable[[int], slice] | None,
) -> Iterator[Batch]:
    order = np.random.default_rng((seed, epoch)).permutation(len(split)) if shuffle else None
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

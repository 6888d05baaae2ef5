"""Batches of a split, in an order and with random changes that a seed and an epoch determine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.arguments import as_integer
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

    Attributes
    ----------
    inputs : array, (B, *input_shape)
        Normalized samples.
    labels : array of int64, (B,) or (B, T)
        Classes.
    lengths : array of int64, (B,), or None
        Number of valid steps per sample. None if no sequence is padded.
    """

    inputs: np.ndarray
    labels: np.ndarray
    lengths: np.ndarray | None

    @property
    def label_lengths(self) -> np.ndarray | None:
        """The number of labels per sample, for losses; None with one label per sample."""
        return self.lengths if self.labels.ndim == 2 else None


def number_of_batches(split: Split, batch_size: int) -> int:
    """The number of batches in one epoch, including a smaller last batch."""
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
    """Iterate over one epoch of batches.

    Parameters
    ----------
    split : Split
        The samples; they are not changed.
    batch_size : int
        At least 1. The last batch may be smaller.
    seed, epoch : int, default: 0
        Both choose the order of the samples.
    shuffle : bool, default: True
        False keeps the order of the split.
    start : int, default: 0
        Number of batches to skip, to resume an epoch.
    dtype : dtype, default: float32
        Dtype of the inputs.
    augment : str, optional
        "crop-flip" crops and flips images at random.
    samples : callable, optional
        Returns the slice of a batch to read (`net.own_samples`). Other inputs are 0.

    Yields
    ------
    Batch
        Copies of the samples. Each sample occurs once.

    Raises
    ------
    DataError
        If an argument is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from bppsa_cupy.data import Split, batches
    >>> split = Split(np.zeros((8, 3), np.float32), np.arange(8), None)
    >>> [batch.inputs.shape for batch in batches(split, 3)]
    [(3, 3), (3, 3), (2, 3)]
    """
    count = number_of_batches(split, batch_size)
    seed, epoch = (
        as_integer("batches", name, value, 0, None, error=DataError)
        for name, value in (("seed", seed), ("epoch", epoch))
    )
    start = as_integer("batches", "start", start, 0, count, error=DataError)
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
            padded = np.zeros(
                (stop - first, *inputs.shape[1:]), dtype
            )  # pages that nobody touches take no memory
            padded[part] = inputs
            inputs = padded
        lengths = None if split.lengths is None else split.lengths[chosen].copy()
        yield Batch(inputs, split.labels[chosen].copy(), lengths)


class Augmentation:
    """Random crops and flips of a split's images in one epoch: "crop-flip".

    Images get 4 pixels of zeros on each side, are cropped at random to their size, and every second one on
    average is flipped (He et al. 2016, section 4.2). torchvision's RandomCrop(size, padding=4) and
    RandomHorizontalFlip do the same.

    Raises
    ------
    DataError
        If the name is unknown, or the samples are not images (C, H, W).

    Notes
    -----
    Each change depends only on the seed, the epoch and the index of the sample in the split.
    """

    def __init__(self, name: str, split: Split, seed: int, epoch: int) -> None:
        check_augmentation(name)
        shape = split.inputs.shape[1:]
        if len(shape) != 3:
            raise DataError(
                f"{name} needs images (C, H, W), but the samples have shape {shape}: omit augment"
            )
        draws = np.random.default_rng((seed, epoch, _STREAM))
        self._corners = draws.integers(0, 2 * PADDING + 1, (len(split), 2))
        self._flipped = draws.integers(0, 2, len(split)).astype(bool)

    def apply(self, inputs: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Return a changed copy of `inputs` (B, C, H, W), which are samples `chosen` (B,) of the split."""
        height, width = inputs.shape[2:]
        padded = np.pad(inputs, ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING)))
        result = np.empty_like(inputs)
        for image, canvas, sample in zip(result, padded, chosen, strict=True):
            top, left = self._corners[sample]
            crop = canvas[:, top : top + height, left : left + width]
            image[...] = crop[:, :, ::-1] if self._flipped[sample] else crop
        return result


def check_augmentation(name: str) -> None:
    """Raise DataError if there is no augmentation of this name."""
    if name not in AUGMENTATIONS:
        raise DataError(f"the augmentation {name!r} is unknown: pass {', '.join(AUGMENTATIONS)}")

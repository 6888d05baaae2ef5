"""Data sets, the normalization of their inputs, and batches in an order that a seed determines."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.arguments import as_integer, as_plain_array
from bppsa_cupy.errors import ArgumentError, DataError, ShapeError
from bppsa_cupy.timescan.lengths import check_lengths

#: The label that PyTorch leaves out by default.
IGNORED = -100

_CHUNK_BYTES = 1 << 24


@dataclass(frozen=True)
class Normalization:
    """Maps inputs to (value − mean) / std, with one pair of constants per channel.

    Images (N, C, H, W) have C channels, sequences (N, T, F) have F, vectors (N, D) have one. Bytes are
    divided by 255 first.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def measured(cls, inputs: np.ndarray) -> Normalization:
        """Return the constants that give `inputs` mean 0 and deviation 1. Constant channels get std 1."""
        axis = _channel_axis(inputs)
        axes = tuple(k for k in range(inputs.ndim) if k != axis)
        count = inputs.size // (1 if axis is None else inputs.shape[axis])
        scale = _scale(inputs)
        step = max(1, _CHUNK_BYTES // max(1, inputs[0].size * 8))
        chunks = [inputs[start : start + step] for start in range(0, len(inputs), step)]
        mean = sum(chunk.sum(axes, np.float64, keepdims=True) for chunk in chunks) / count
        square = sum(((chunk - mean) ** 2).sum(axes, keepdims=True) for chunk in chunks) / count
        std = np.sqrt(square) * scale
        return cls(
            tuple(float(v) for v in (mean * scale).reshape(-1)),
            tuple(float(v) if v > 0 else 1.0 for v in std.reshape(-1)),
        )

    def apply(self, inputs: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Return a normalized copy of a batch. Raises DataError for another number of channels."""
        axis = _channel_axis(inputs)
        channels = 1 if axis is None else inputs.shape[axis]
        if len(self.mean) != channels:
            raise DataError(
                f"the normalization has {len(self.mean)} channels, but inputs of shape {inputs.shape} have "
                f"{channels}: use the normalization of this data set"
            )
        shape = tuple(channels if k == axis else 1 for k in range(inputs.ndim))
        mean, std = (np.asarray(values).reshape(shape) for values in (self.mean, self.std))
        result = inputs.astype(dtype)
        result *= (_scale(inputs) / std).astype(dtype)
        result -= (mean / std).astype(dtype)
        return result


@dataclass(frozen=True, eq=False)
class Split:
    """Training or test samples.

    Attributes
    ----------
    inputs : array, (N, *input_shape)
        uint8 or float32, not normalized.
    labels : array of int64, (N,) or (N, T)
        Classes. With one label per step, -100 marks steps without a label.
    normalization : Normalization or None
        The constants that `batches` applies to the inputs.
    lengths : array of int64, (N,), or None
        Lengths of sequences (N, T, F) that are padded to T. None if no sequence is padded.
    source : str
        Where the samples come from, for error messages.

    Examples
    --------
    >>> import numpy as np
    >>> from bppsa_cupy.data import Split
    >>> len(Split(np.zeros((8, 3), np.float32), np.zeros(8, np.int64)).labels)
    8
    """

    inputs: np.ndarray
    labels: np.ndarray
    normalization: Normalization | None = None
    lengths: np.ndarray | None = None
    source: str = ""

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set for classification.

    Attributes
    ----------
    name : str
        Name of the data set.
    input_shape : tuple of int
        Shape of one sample: (C, H, W), (T, F) or (D,).
    classes : int
        Number of classes.
    train : Split
        Training samples.
    test : Split or None
        Test samples.
    normalization : Normalization or None
        The constants that `batches` applies.
    source : str or None
        The argument of `load`, with an absolute path.

    Examples
    --------
    >>> import numpy as np
    >>> from bppsa_cupy.data import Dataset, Split
    >>> split = Split(np.zeros((8, 3), np.float32), np.zeros(8, np.int64), None)
    >>> Dataset("zeros", (3,), 2, split, None, None).per_step
    False
    """

    name: str
    input_shape: tuple[int, ...]
    classes: int
    train: Split
    test: Split | None
    normalization: Normalization | None
    source: str | None = None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all samples and labels, in their order."""
        state = hashlib.sha256(repr((self.input_shape, self.classes, self.normalization)).encode())
        for split in (self.train, self.test):
            arrays = () if split is None else (split.inputs, split.labels, split.lengths)
            for array in arrays:
                if array is not None:
                    state.update(repr((array.dtype.str, array.shape)).encode())
                    state.update(np.ascontiguousarray(array).data)
        return state.hexdigest()

    @property
    def per_step(self) -> bool:
        """Whether labels have shape (N, T), one per time step."""
        return self.train.labels.ndim == 2


@dataclass(frozen=True)
class RawDataset:
    """A data set as a reader returns it.

    Attributes
    ----------
    classes : int or None
        Number of classes of the format. None uses the highest label + 1, at least `least_classes`.
    normalization : Normalization or None
        Constants of the format. None computes them from the training inputs.
    ready : bool
        Whether inputs need no normalization.
    """

    name: str
    train: Split
    test: Split | None
    classes: int | None = None
    least_classes: int = 1
    normalization: Normalization | None = None
    ready: bool = False


def make_dataset(raw: RawDataset, classes: int | None, normalize: bool) -> Dataset:
    """Check what a reader returned and create the data set.

    Parameters
    ----------
    raw : RawDataset
        The data set that the reader returned.
    classes : int or None
        Number of classes, if it is not that of the format.
    normalize : bool
        False leaves inputs unchanged.

    Raises
    ------
    DataError
        If shapes, labels or values are not valid. The message names the source.
    """
    train, raws = raw.train, [raw.train] if raw.test is None else [raw.train, raw.test]
    shape = tuple(train.inputs.shape[1:])
    counted = [_check(raw) for raw in raws]
    for split in raws:
        if split.inputs.shape[1:] != shape or split.labels.ndim != train.labels.ndim:
            raise DataError(
                f"{train.source} has inputs of shape {train.inputs.shape} and labels of shape "
                f"{train.labels.shape}, but {split.source} has inputs of shape {split.inputs.shape} and "
                f"labels of shape {split.labels.shape}: pass splits that differ only in N"
            )
    highest = max(int(raw.labels[counts].max()) for raw, counts in zip(raws, counted, strict=True))
    classes = classes or raw.classes or max(raw.least_classes, 1 + highest)
    for split, counts in zip(raws, counted, strict=True):
        wrong = np.argwhere(counts & ((split.labels < 0) | (split.labels >= classes)))
        if len(wrong):
            where = ", step ".join(map(str, wrong[0].tolist()))
            raise DataError(
                f"{split.source} has the label {split.labels[tuple(wrong[0])]} in sample {where}: use "
                f"labels from 0 to {classes - 1}"
            )
    normalization = None
    if normalize and not raw.ready:
        normalization = raw.normalization or Normalization.measured(train.inputs)
    splits = [
        replace(
            raw, labels=raw.labels.astype(np.int64), normalization=normalization,
            lengths=None if raw.lengths is None else raw.lengths.astype(np.int64),
        )
        for raw in raws
    ]  # fmt: skip
    test = None if raw.test is None else splits[1]
    return Dataset(raw.name, shape, classes, splits[0], test, normalization)


def _check(raw: Split) -> np.ndarray:
    """Which labels, (N,) or (N, T), are to be classes: all, or those labels by step that a loss counts."""
    inputs, labels, source = raw.inputs, raw.labels, raw.source
    if inputs.ndim < 2 or not inputs.size:
        raise DataError(
            f"{source} has inputs of shape {inputs.shape}: the shape must be (N, …), with N at least 1"
        )
    shapes = [(len(inputs),), *([inputs.shape[:2]] if inputs.ndim == 3 else [])]
    if labels.shape not in shapes or labels.dtype.kind not in "iu":
        raise DataError(
            f"{source} has {len(inputs)} inputs, but labels of {labels.dtype} and shape {labels.shape}: "
            f"labels must be integers of shape {' or '.join(map(str, shapes))}"
        )
    if inputs.dtype.kind == "f" and not np.isfinite(inputs).all():
        bad = int(np.flatnonzero(~np.isfinite(inputs.reshape(len(inputs), -1)).all(1))[0])
        raise DataError(f"{source} has a NaN or infinite input in sample {bad}: remove or repair it")
    if raw.lengths is not None:
        try:
            check_lengths(raw.lengths, *inputs.shape[:2])
        except ShapeError as error:
            raise DataError(f"{source}: {error}") from error
    if labels.ndim == 1:
        return np.ones(len(labels), bool)
    counted = counted_labels(labels, raw.lengths)
    if not counted.any(1).all():
        bad = int(counted.any(1).argmin())
        raise DataError(
            f"all labels of sample {bad} in {source} are ignored: remove the sample, or give it a label"
        )
    return counted


def draw_test(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Return a mask (N,) bool of the test samples, a share of each class that `seed` chooses."""
    generator = np.random.default_rng(seed)
    is_test = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        is_test[members[: round(fraction * len(members))]] = True
    return is_test


def counted_labels(labels: np.ndarray, lengths: Any = None, ignore_index: int = IGNORED) -> np.ndarray:
    """Mark the labels that are neither ignored nor padding.

    Parameters
    ----------
    labels : array of int, (B,) or (B, T)
        Classes.
    lengths : array of int, (B,), or None
        Number of valid steps of each sample, for labels (B, T).
    ignore_index : int
        The ignored label.

    Returns
    -------
    array of bool
        An array in the shape of the labels.

    Raises
    ------
    ShapeError
        If a length is out of range.
    """
    counted = labels != as_integer("cross_entropy", "ignore_index", ignore_index)
    if lengths is None:
        return counted
    array = as_plain_array("cross_entropy", "lengths", lengths)
    if labels.ndim != 2:
        raise ArgumentError(
            "cross_entropy got lengths, but labels has one label per sample: omit lengths, or pass labels of "
            "shape (B, T)"
        )
    batch, steps = labels.shape
    check_lengths(array, batch, steps)
    return counted & (np.arange(steps) < array[:, None])


def _channel_axis(inputs: np.ndarray) -> int | None:
    return {4: 1, 3: 2}.get(inputs.ndim)


def _scale(inputs: np.ndarray) -> float:
    return 1 / 255 if inputs.dtype == np.uint8 else 1.0


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
    """Return the number of batches in one epoch. The last batch may be smaller and is counted too."""
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
        The samples, which are not changed.
    batch_size : int
        At least 1. The last batch may be smaller.
    seed, epoch : int, default: 0
        Numbers that determine the order of the samples and the augmentation.
    shuffle : bool, default: True
        False keeps the order of the split.
    start : int, default: 0
        Number of batches to skip, to resume an epoch.
    dtype : dtype, default: float32
        Dtype of the inputs.
    augment : str, optional
        "crop-flip" crops and flips images at random.
    samples : callable, optional
        Maps a batch size to the slice of samples to load, as `net.own_samples` does. Other inputs are 0.

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
    seed = as_integer("batches", "seed", seed, 0, None, error=DataError)
    epoch = as_integer("batches", "epoch", epoch, 0, None, error=DataError)
    start = as_integer("batches", "start", start, 0, count, error=DataError)
    changes = None if augment is None else Augmentation(augment, split, seed, epoch)
    order = np.random.default_rng((seed, epoch)).permutation(len(split)) if shuffle else None
    dtype = np.dtype(dtype)

    def make_batches() -> Iterator[Batch]:
        for step in range(start, count):
            first, stop = step * batch_size, min((step + 1) * batch_size, len(split))
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
                # Pages that nobody touches take no memory.
                padded = np.zeros((stop - first, *inputs.shape[1:]), dtype)
                padded[part] = inputs
                inputs = padded
            lengths = None if split.lengths is None else split.lengths[chosen].copy()
            yield Batch(inputs, split.labels[chosen].copy(), lengths)

    return make_batches()


class Augmentation:
    """Random crops and flips of a split's images in one epoch: "crop-flip".

    Images are padded by 4 zeros on each side, cropped to their size at a random position, and flipped with
    probability 1/2 (He et al. 2016, section 4.2). RandomCrop(size, padding=4) and RandomHorizontalFlip of
    torchvision do the same.

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
        raise DataError(f"the augmentation {name!r} is unknown: pass {' or '.join(map(repr, AUGMENTATIONS))}")

"""What a data set is, and how its inputs are normalised."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer, as_plain_array
from bppsa_cupy.errors import ArgumentError, DataError, ShapeError
from bppsa_cupy.timescan.lengths import check_lengths

#: The label that PyTorch leaves out by default.
IGNORED = -100

_CHUNK_BYTES = 1 << 24


@dataclass(frozen=True)
class Raw:
    """Arrays as a reader returns them.

    Attributes
    ----------
    inputs : array, (N, ...)
        Samples.
    labels : array of int, (N,) or (N, T)
        One class per sample, or one per step of a sequence.
    source : str
        The source of the samples.
    lengths : array of int, (N,), or None
        Lengths of sequences (N, T, F) that are padded to T.
    """

    inputs: np.ndarray
    labels: np.ndarray
    source: str
    lengths: np.ndarray | None = None


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
        """Return the constants that give `inputs` mean 0 and deviation 1; constant channels keep 1."""
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

    Examples
    --------
    >>> import numpy as np
    >>> from bppsa_cupy.data import Split
    >>> len(Split(np.zeros((8, 3), np.float32), np.zeros(8, np.int64), None).labels)
    8
    """

    inputs: np.ndarray
    labels: np.ndarray
    normalization: Normalization | None
    lengths: np.ndarray | None = None

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
        """Whether each step has a label, (N, T)."""
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
    train: Raw
    test: Raw | None
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
        Split(
            raw.inputs, raw.labels.astype(np.int64), normalization,
            None if raw.lengths is None else raw.lengths.astype(np.int64),
        )
        for raw in raws
    ]  # fmt: skip
    test = None if raw.test is None else splits[1]
    return Dataset(raw.name, shape, classes, splits[0], test, normalization)


def _check(raw: Raw) -> np.ndarray:
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
    """(N,) bool: the samples for the test, a share of each class that `seed` chooses."""
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

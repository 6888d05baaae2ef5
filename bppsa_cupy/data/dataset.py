"""What a data set is, and how its inputs are normalised."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer, as_plain_array
from bppsa_cupy.errors import DataError, ShapeError
from bppsa_cupy.timescan.lengths import check_lengths

#: The label that PyTorch leaves out by default.
IGNORED = -100

_CHUNK_BYTES = 1 << 24


@dataclass(frozen=True)
class Raw:
    """Arrays as a reader finds them: inputs (N, …), integer labels (N,), where they come from, and for
    sequences (N, T, F) of several lengths, padded to T, their lengths (N,). Sequences may have labels (N, T),
    one a step.
    """

    inputs: np.ndarray
    labels: np.ndarray
    source: str
    lengths: np.ndarray | None = None


@dataclass(frozen=True)
class Normalization:
    """Inputs become (value − mean) / std, with one pair of constants a channel; bytes are divided by 255
    first. Images (N, C, H, W) have C channels, sequences (N, T, F) have F, vectors (N, D) one.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, inputs: np.ndarray) -> Normalization:
        """The constants that bring `inputs` to zero mean and unit deviation; a constant channel keeps 1."""
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
        """A normalised copy of a batch of inputs, of `dtype`. Raises DataError for other channels."""
        axis = _channel_axis(inputs)
        channels = 1 if axis is None else inputs.shape[axis]
        if len(self.mean) != channels:
            raise DataError(
                f"the normalization has {len(self.mean)} channels and the inputs {inputs.shape} have "
                f"{channels}: they must be equal"
            )
        shape = tuple(channels if k == axis else 1 for k in range(inputs.ndim))
        mean, std = (np.asarray(values).reshape(shape) for values in (self.mean, self.std))
        result = inputs.astype(dtype)
        result *= (_scale(inputs) / std).astype(dtype)
        result -= (mean / std).astype(dtype)
        return result


@dataclass(frozen=True, eq=False)
class Split:
    """Training or test samples, as they lie in memory.

    inputs         (N, *input_shape) uint8 or float32, not normalised
    labels         (N,) int64, 0 <= label < classes; or (N, T), one a step: -100 where there is none, and
                   anything at padded steps
    normalization  what `batches` applies to the inputs; None leaves the values as they are
    lengths        (N,) int64, 1 <= length <= T, of sequences (N, T, F) that are padded to T; None where
                   every step of every sample counts
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

    input_shape  of one sample: (C, H, W), (T, F) or (D,)
    test         None where the source has no test samples
    source       what `load` was given, a path as an absolute one; None for what was made otherwise
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
        """SHA-256 of all samples and labels, in their order; taken once."""
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
        """Whether there is a label at every step, (N, T), and so a loss at every step."""
        return self.train.labels.ndim == 2


@dataclass(frozen=True)
class RawDataset:
    """What a reader makes of a source.

    classes        the layout's number of classes; None takes the highest label + 1, at least `least_classes`
    normalization  the layout's constants; None computes them from the training inputs
    ready          the inputs are to be used as they are: nothing is computed
    """

    name: str
    train: Raw
    test: Raw | None
    classes: int | None = None
    least_classes: int = 1
    normalization: Normalization | None = None
    ready: bool = False


def make_dataset(raw: RawDataset, classes: int | None, normalize: bool) -> Dataset:
    """Check what a reader made and put it together.

    classes    the number of classes where it is not the layout's
    normalize  False leaves inputs as they are
    Raises DataError naming the source and what does not fit.
    """
    train, raws = raw.train, [raw.train] if raw.test is None else [raw.train, raw.test]
    shape = tuple(train.inputs.shape[1:])
    counted = [_check(one) for one in raws]
    for one in raws:
        if one.inputs.shape[1:] != shape or one.labels.ndim != train.labels.ndim:
            raise DataError(
                f"{train.source} has samples of shape {shape} and labels of shape {train.labels.shape}, and "
                f"{one.source} of {one.inputs.shape[1:]} and {one.labels.shape}: they must be equal but for N"
            )
    highest = max(int(one.labels[counts].max()) for one, counts in zip(raws, counted, strict=True))
    classes = classes or raw.classes or max(raw.least_classes, 1 + highest)
    for one, counts in zip(raws, counted, strict=True):
        wrong = np.argwhere(counts & ((one.labels < 0) | (one.labels >= classes)))
        if len(wrong):
            where = ", step ".join(map(str, wrong[0].tolist()))
            raise DataError(
                f"{one.source} has label {one.labels[tuple(wrong[0])]} in record {where}: {classes} classes "
                f"take 0 to {classes - 1}"
            )
    normalization = None
    if normalize and not raw.ready:
        normalization = raw.normalization or Normalization.of(train.inputs)
    splits = [
        Split(
            one.inputs, one.labels.astype(np.int64), normalization,
            None if one.lengths is None else one.lengths.astype(np.int64),
        )
        for one in raws
    ]  # fmt: skip
    test = None if raw.test is None else splits[1]
    return Dataset(raw.name, shape, classes, splits[0], test, normalization)


def _check(raw: Raw) -> np.ndarray:
    """Which labels, (N,) or (N, T), are to be classes: all, or those labels by step that a loss counts."""
    inputs, labels, source = raw.inputs, raw.labels, raw.source
    if inputs.ndim < 2 or not inputs.size:
        raise DataError(f"{source} has inputs of shape {inputs.shape}: it must be (N, …) with N at least 1")
    shapes = [(len(inputs),), *([inputs.shape[:2]] if inputs.ndim == 3 else [])]
    if labels.shape not in shapes or labels.dtype.kind not in "iu":
        raise DataError(
            f"{source} has {len(inputs)} inputs and labels {labels.dtype} of shape {labels.shape}: "
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
        raise DataError(f"{source} has no label in sample {bad}: each sample must have one at least")
    return counted


def counted_labels(labels: np.ndarray, lengths: Any = None, ignore_index: int = IGNORED) -> np.ndarray:
    """Which labels, (B,) or (B, T), count: those that are not ignored and stand at no padded step.

    lengths  (B,) integers from 1 to T, or None; with labels (B, T) alone. Raises ShapeError naming sample,
             length and T.
    """
    counted = labels != as_integer("cross_entropy", "ignore_index", ignore_index)
    if lengths is None:
        return counted
    array = as_plain_array("cross_entropy", "lengths", lengths)
    if labels.ndim != 2:
        raise ShapeError("lengths were given with one label a sample: they take labels (B, T), one a step")
    batch, steps = labels.shape
    check_lengths(array, batch, steps)
    return counted & (np.arange(steps) < array[:, None])


def _channel_axis(inputs: np.ndarray) -> int | None:
    return {4: 1, 3: 2}.get(inputs.ndim)


def _scale(inputs: np.ndarray) -> float:
    return 1 / 255 if inputs.dtype == np.uint8 else 1.0

"""Where the samples of a batch of sequences end, and resets inside sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from bppsa_cupy.conversion import is_on_gpu
from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.errors import ShapeError


def check_lengths(lengths: np.ndarray, batch: int, steps: int) -> None:
    """Raise ShapeError, naming sample, length and T, unless lengths are (B,) integers from 1 to T."""
    if lengths.shape != (batch,) or lengths.dtype.kind not in "iu":
        raise ShapeError(
            f"`lengths` has dtype {lengths.dtype} and shape {lengths.shape}: pass integers of shape "
            f"({batch},), one per sample"
        )
    wrong = np.flatnonzero((lengths < 1) | (lengths > steps))
    if wrong.size:
        raise ShapeError(
            f"sample {wrong[0]} has length {lengths[wrong[0]]}: pass lengths from 1 to T = {steps}"
        )


def take_lengths(device: Device, lengths: Any, batch: int, steps: int) -> Array:
    """`lengths` (B,) as int64 on the device. Raises ShapeError naming sample, length and T.

    It is a copy. For those of the host nothing waits; for those of a GPU, which are looked at on the host,
    it waits until the GPU has made them. In a capture, where nothing can wait, they are not checked.
    """
    if device.capturing:
        return device.asarray(lengths, dtype=np.int64)
    if isinstance(lengths, device.xp.ndarray) or is_on_gpu(lengths):
        array = device.asarray(lengths)
        check_lengths(device.to_host(array), batch, steps)
    else:
        array = get_device("host").asarray(lengths)
        check_lengths(array, batch, steps)
    return device.asarray(array.astype(np.int64))


#: A projected input at which a sigmoid is exactly 0.
CLOSED = -1e4


class Resets:
    """Where the states of a batch are set to zero, and the steps that do so.

    An extra step precedes every marked step but the first of a sequence. It makes the state zero, so no
    gradient passes, in either direction.

    Parameters
    ----------
    first
        (B,) bool, the samples whose first step is marked: their first states are zero.
    cuts
        (B, T) bool, the other marks.
    places
        (B, T), the place of each step among all steps.
    lengths
        (B,), the steps of each sample with the extra ones.
    steps
        The most of them, rounded up, so that few numbers occur.
    extra
        (times, samples) of the extra steps.
    """

    def __init__(self, device: Device, marks: Any, batch: int, steps: int) -> None:
        """Raises ShapeError unless marks are bools (B, T)."""
        xp, marks = device.xp, device.asarray(marks)
        if marks.dtype != np.bool_ or marks.shape != (batch, steps):
            raise ShapeError(
                f"`resets` has dtype {marks.dtype} and shape {tuple(marks.shape)}: pass bools of shape "
                f"{(batch, steps)}, one per sample and step"
            )
        self._xp, self.first, self.cuts = xp, marks[:, 0].copy(), marks.copy()
        self.cuts[:, 0] = False
        before = self.cuts.cumsum(1)
        self.places, self.lengths = xp.arange(steps) + before, steps + before[:, -1]
        unit = max(1, steps // 8)
        self.steps = min(2 * steps, steps - int(before[:, -1].max()) // -unit * unit)
        samples, times = xp.nonzero(self.cuts)
        self.extra = self.places[samples, times] - 1, samples

    def spread(self, sequences: Array, out: Array) -> Array:
        """Write sequences (B, T, columns) to their places in `out` (B, steps, columns), zeros elsewhere."""
        out[...] = 0
        out[self._xp.arange(len(out))[:, None], self.places] = sequences
        return out

    def gather(self, sequences: Array) -> Array:
        """The inverse of `spread`."""
        return sequences[self._xp.arange(len(sequences))[:, None], self.places]

    def gather_jacobians(self, values: Array, reverse: bool) -> Array:
        """The values (T, nnz, B) of all steps, from those with the extra steps; 0 where no state passes."""
        xp = self._xp
        jacobians = xp.take_along_axis(values, self.places.T[:, None], axis=0)
        cuts = self.cuts.T.copy()
        if reverse:
            cuts[:-1], cuts[-1] = cuts[1:].copy(), False
        else:
            cuts[0] = self.first
        return xp.where(cuts[:, None], xp.zeros((), values.dtype), jacobians)

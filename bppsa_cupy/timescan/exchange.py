"""Sequences of a layer's caller, (B, T, columns), to and from those of the scans over time, (T, rows, B).

The caller's are C-contiguous, or views of (T, B, columns) where no sample ends early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.raw_kernels.kernel import Kernel
from bppsa_cupy.raw_kernels.sequence_gather import KERNEL as GATHER
from bppsa_cupy.raw_kernels.sequence_scatter import KERNEL as SCATTER


class Gather:
    """A call that takes the caller's sequences: it sets `inside` to their columns from `first` on, and to 0
    behind a sample's end.

    lengths  (B,) int64, where each sample ends
    inside   out, (T, rows, B)
    """

    def __init__(self, device: Device, lengths: Array, inside: Array, first: int = 0) -> None:
        self._inside, self._columns = inside, slice(first, first + inside.shape[1])
        self._launch = _Launch(
            device, GATHER,
            lambda outside: (outside, lengths, inside, *inside.shape, outside.shape[2], first),
        )  # fmt: skip

    def __call__(self, outside: Array) -> None:
        if _is_by_time(outside):
            self._inside[...] = outside[:, :, self._columns].transpose(1, 2, 0)
        else:
            self._launch(outside)


class Scatter:
    """A call that writes the caller's sequences: it sets their columns from `first` on to the first `rows` of
    `inside`, and to 0 behind a sample's end.

    lengths  (B,) int64, where each sample ends
    inside   (T, >= rows, B)
    """

    def __init__(self, device: Device, lengths: Array, inside: Array, rows: int, first: int = 0) -> None:
        steps, all_rows, batch = inside.shape
        self._inside, self._columns = inside[:, :rows], slice(first, first + rows)
        self._launch = _Launch(
            device, SCATTER,
            lambda outside: (
                inside, lengths, outside, steps, all_rows, rows, batch, outside.shape[2], first,
            ),
        )  # fmt: skip

    def __call__(self, outside: Array) -> None:
        if _is_by_time(outside):
            outside[:, :, self._columns] = self._inside.transpose(2, 0, 1)
        else:
            self._launch(outside)


class _Launch:
    """A kernel's launch on arrays of the caller's, of which nothing is checked again while their shape and
    dtype are those of the last one."""

    def __init__(self, device: Device, kernel: Kernel, arguments: Callable[[Array], tuple[Any, ...]]) -> None:
        self._device, self._kernel, self._arguments = device, kernel, arguments
        self._known: tuple[Any, Any] = None, None
        self._call: Callable[..., None] | None = None

    def __call__(self, outside: Array) -> None:
        known = outside.shape, outside.dtype
        if self._call is None or known != self._known or not outside.flags.c_contiguous:
            self._call = self._device.bind_open(self._kernel, ("outside",), *self._arguments(outside))
            self._known = known
        self._call(outside)


def _is_by_time(outside: Array) -> bool:
    """Whether (B, T, columns) are a view of (T, B, columns)."""
    by_sample, by_step, _ = outside.strides
    return bool(by_sample < by_step)

"""Sequences of a layer's caller, (B, T, columns), to and from those of the scans over time, (T, rows, B).

The caller's are C-contiguous, or views of (T, B, columns) where no sample ends early.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.raw_kernels.kernel import Kernel
from bppsa_cupy.raw_kernels.sequences import sequence_gather, sequence_scatter


class Exchange(abc.ABC):
    """A call that takes or writes some columns of the caller's sequences. Of these nothing is checked again
    while shape and dtype are those of the last call.

    lengths  (B,) int64, where each sample ends
    inside   (T, rows, B)
    columns  of the caller's that are the rows inside, from the first on

    A call is told whether samples may end early. Where none does, a single one is copied, which takes half as
    long as a small launch.
    """

    kernel: Kernel

    def __init__(self, device: Device, lengths: Array, inside: Array, columns: slice) -> None:
        self._device, self._lengths, self._inside, self._columns = device, lengths, inside, columns
        self._alone = inside.shape[2] == 1
        self._known: Any = None
        self._launch: Callable[..., None]  # of what is known

    def __call__(self, outside: Array, ends_early: bool) -> None:
        by_sample, by_step, _ = outside.strides
        if by_sample < by_step or (self._alone and not ends_early):
            self._copy(outside)
            return
        known = outside.shape, outside.dtype
        if known != self._known or not outside.flags.c_contiguous:
            self._launch = self._device.bind_open(self.kernel, ("outside",), *self._arguments(outside))
            self._known = known
        self._launch(outside)

    @abc.abstractmethod
    def _copy(self, outside: Array) -> None:
        """Take or write all steps of the caller's, in any order of axes."""

    @abc.abstractmethod
    def _arguments(self, outside: Array) -> tuple[Any, ...]:
        """Those of the kernel."""


class Gather(Exchange):
    """Sets `inside` to columns of the caller's; to 0 after a sample's end."""

    kernel = sequence_gather

    def __init__(self, device: Device, lengths: Array, inside: Array, first: int = 0) -> None:
        super().__init__(device, lengths, inside, slice(first, first + inside.shape[1]))

    def _copy(self, outside: Array) -> None:
        memory = self._device.memory_of
        memory(self._inside)[...] = memory(outside[:, :, self._columns].transpose(1, 2, 0))

    def _arguments(self, outside: Array) -> tuple[Any, ...]:
        inside = self._inside
        return outside, self._lengths, inside, *inside.shape, outside.shape[2], self._columns.start


class Scatter(Exchange):
    """Sets columns of the caller's to the first `rows` of `inside`; to 0 after a sample's end."""

    kernel = sequence_scatter

    def __init__(self, device: Device, lengths: Array, inside: Array, rows: int, first: int = 0) -> None:
        super().__init__(device, lengths, inside, slice(first, first + rows))
        self._rows = rows

    def _copy(self, outside: Array) -> None:
        memory = self._device.memory_of
        by_time = outside[:, :, self._columns].transpose(1, 2, 0)
        memory(by_time)[...] = memory(self._inside[:, : self._rows])

    def _arguments(self, outside: Array) -> tuple[Any, ...]:
        steps, all_rows, batch = self._inside.shape
        sizes = steps, all_rows, self._rows, batch, outside.shape[2], self._columns.start
        return self._inside, self._lengths, outside, *sizes

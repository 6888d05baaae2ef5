"""Going back through time by reduce, scan and expand over chunks of steps.

Reduce: the product of each chunk's transposed Jacobians, all chunks at once, Jacobians never stored.
Scan: the gradients at the boundaries of chunks, from those maps. Expand: the serial pass inside every
chunk at once, each from its boundary.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.timescan import cost, serial
from bppsa_cupy.timescan.models import model_of
from bppsa_cupy.timescan.walk import Walk

#: Which way over time a method of net.backward asks for.
WAYS = {"auto": "auto", "bp": "serial", "linear": "serial", "blelloch": "chunked", "hybrid": "chunked"}


def bind_reduce(
    device: Device,
    walk: Walk,
    gradient: Array | None,
    chunk: int,
    first: int,
    maps: Array,
    exponents: Array,
    offsets: Array,
) -> Launch:
    """A call that fills the maps of chunks from `first` on.

    gradient   (T, H, B), by the output of every step, or None
    maps       out, (chunks - first, W, S, S), by columns, each without its power of two: of W walks, heads
               times samples, whose states have S elements
    exponents  out, (chunks - first, W, S) int32, those powers
    offsets    out, (chunks - first, P H, B), what each chunk makes of its own gradients; (0,) without any
    """
    return device.bind(
        kernels_of(walk.size.cell)["reduce"], walk.gates, walk.state, walk.initial, *walk.weights,
        walk.or_none(gradient), walk.lengths, maps, exponents, offsets, *walk.size.scalars, chunk, first,
        gradient is not None, walk.reverse,
    )  # fmt: skip


class TimeScan:
    """A backward pass of one walk, bound to its arrays: calling it fills `delta` and `entering`.

    gradient  (T, H, B), by the output of every step; None where there is none
    last      (P H, B), the gradient by the state after the last step
    delta     out, (T, cell.deltas * H, B)
    entering  out, (P H, B), the gradient by the initial state
    method    "auto", "bp", "linear" (serial), "blelloch" or "hybrid" (by chunks), as net.backward takes them
    reduce, scan, expand  the three phases of a scan by chunks, one launch each
    chunk     its length in steps; by default the cost model's
    free      bytes it may take; by default all the device has

    Law: every method and chunk length gives the same gradients up to rounding. Where a boundary is not
    finite, as where the products of Jacobians left the range and the gradients might not have, the
    pass is run again serially, and `description` says so. Raises DeviceError with the bytes needed and
    free, and the chunk length that would fit, before anything is allocated.
    """

    def __init__(
        self,
        device: Device,
        walk: Walk,
        gradient: Array | None,
        last: Array,
        delta: Array,
        entering: Array,
        method: str = "auto",
        chunk: int | None = None,
        free: int | None = None,
    ) -> None:
        self._device, self._entering = device, entering
        self.reran = False
        size, model, way = walk.size, model_of(device), WAYS[method]
        free = device.free_memory() if free is None else free
        self.choice = cost.choose(model, size, method=way, chunk=chunk, free=free if chunk is None else None)
        if way == "serial":
            self.choice = replace(self.choice, reason=f"method {method!r}")
        self._serial = serial.backward(device, walk, gradient, last, size.steps, delta, entering)
        if self.choice.method == "serial":
            return
        needed = size.chunk_bytes(self.choice.chunk)
        if needed > free:
            fits = size.fitting_chunk(free)
            advice = "take method='linear'" if fits is None else f"chunks of {fits} steps or more would fit"
            raise DeviceError(
                f"{device.name}: a scan over {size.steps} steps by chunks of {self.choice.chunk} takes "
                f"{needed} bytes, {free} are free for it: {advice}"
            )
        self._bind(walk, gradient, last, delta)

    def _bind(self, walk: Walk, gradient: Array | None, last: Array, delta: Array) -> None:
        device, dtype, size = self._device, walk.state.dtype, walk.size
        chunks, chunk, walks, state = self.choice.chunks, self.choice.chunk, size.walks, size.state
        maps = device.empty((chunks - 1, walks, state, state), dtype)
        exponents = device.empty((chunks - 1, walks, state), np.int32)
        offsets = device.empty((chunks - 1, *last.shape) if gradient is not None else 0, dtype)
        boundary, self._entering_all = (device.empty((chunks, *last.shape), dtype) for _ in range(2))
        self._flag = device.zeros(1, np.int32)
        self.reduce = bind_reduce(device, walk, gradient, chunk, 1, maps, exponents, offsets)
        self.scan = device.bind(
            KERNELS["chunk_scan"], maps, exponents, offsets, last, boundary, chunks, *size.boundary_scalars,
            gradient is not None,
        )  # fmt: skip
        self._check = device.bind(KERNELS["finite_check"], boundary, self._flag, boundary.size)
        self.expand = serial.backward(device, walk, gradient, boundary, chunk, delta, self._entering_all)

    def __call__(self) -> None:
        if self.choice.method == "serial":
            self._serial()
            return
        self._flag[...] = 0
        self.reduce()
        self.scan()
        self._check()
        flag = self._device.fetch(self._flag)
        self.expand()
        self._entering[...] = self._entering_all[0]
        self.reran = bool(flag()[0])  # waits for the scan, while chunks expand
        if self.reran:
            self._serial()

    @property
    def description(self) -> str:
        """What the latest call ran, and why."""
        again = "; a boundary was not finite: run again serially" if self.reran else ""
        how = serial.told(self._serial) if self.choice.method == "serial" else ""
        return f"{self.choice}{how}{again}"

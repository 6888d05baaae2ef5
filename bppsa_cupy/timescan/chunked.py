"""Going back through time by reduce, scan and expand over chunks of steps.

Reduce: the product of each chunk's transposed Jacobians, all chunks at once, Jacobians never stored.
Scan: the gradients at the boundaries of chunks, from those maps. Expand: the serial pass inside every
chunk at once, each from its boundary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch, rules
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.timescan import serial
from bppsa_cupy.timescan.ways import Walk, choose_walk, scratch_backward

#: Which way over time a method of net.backward asks for.
WAYS = {"auto": "auto", "bp": "serial", "linear": "serial", "blelloch": "chunked", "hybrid": "chunked"}

#: What a description says of a pass that was run again.
RERAN = "; a boundary was not finite: run again serially"


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

    Parameters
    ----------
    gradient
        (T, H, B), by the output of every step, or None.
    maps
        Output array, (chunks - first, B, S, S), by columns, each without its power of two. States have S
        elements.
    exponents
        Output array, (chunks - first, B, S) int32, those powers.
    offsets
        Output array, (chunks - first, P H, B), what each chunk makes of its own gradients; (0,) without any.
    """
    return device.bind(
        kernels_of(walk.size.cell)["reduce"], walk.gates, walk.state, walk.initial, *walk.weights,
        walk.or_none(gradient), walk.lengths, maps, exponents, offsets, *walk.size.scalars, chunk, first,
        gradient is not None, walk.reverse,
    )  # fmt: skip


@dataclass(frozen=True)
class Elsewhere:
    """The exchange with the chunks of a walk on other ranks.

    Attributes
    ----------
    first
        Whether the walk's first chunk is here.
    receive
        Fills the gradient after the last chunk here; None where that is the walk's last.
    send
        Takes the gradient before the first chunk here; None where that is the walk's first.
    """

    first: bool
    receive: Callable[[Array], None] | None
    send: Callable[[Array], None] | None


class ChunkScan:
    """Reduce, scan and expand of one walk, bound to its arrays: calling it fills `delta` and `entering`.

    Parameters
    ----------
    last, delta, entering
        As `TimeScan` takes them, of the steps here.
    again
        Makes the launch that follows of a flag, (1,) int32 on the device, which is not 0 where a boundary
        is not finite: the serial pass, where it is wanted.
    elsewhere
        Which chunks are here, and what comes from others and goes to them; None where all are here.
    reduce, scan, expand
        The three phases, one launch each.
    """

    def __init__(
        self,
        device: Device,
        walk: Walk,
        gradient: Array | None,
        last: Array,
        delta: Array,
        entering: Array,
        chunk: int,
        again: Callable[[Array], Launch],
        elsewhere: Elsewhere | None = None,
    ) -> None:
        dtype, size, affine = walk.state.dtype, walk.size, gradient is not None
        here = size.chunks(chunk)
        # Nobody needs the map of a walk's first chunk.
        skipped = int(elsewhere is None or elsewhere.first)
        count = here - skipped
        every = [
            device.empty((count, size.batch, size.state, size.state), dtype),
            device.empty((count, size.batch, size.state), np.int32),
            device.empty_walk((count, *last.shape), dtype) if affine else device.empty(0, dtype),
        ]
        boundary = device.empty_walk((count + 1, *last.shape), dtype)
        self._receive: Launch | None = None
        self._send: Launch | None = None
        if elsewhere is not None:
            if elsewhere.receive is not None:
                last = device.empty_walk(last.shape, dtype)
                self._receive = partial(elsewhere.receive, device.memory_of(last))
            if elsewhere.send is not None:
                self._send = partial(elsewhere.send, device.memory_of(boundary[0]))
        self._entering_all = device.empty_walk((here, *last.shape), dtype)
        self._entering, self._first = device.memory_of(entering), device.memory_of(self._entering_all[0])
        self._flag = device.zeros(1, np.int32)
        self._again, self._device = again(self._flag), device
        self.reduce = bind_reduce(device, walk, gradient, chunk, skipped, *every)
        #: What the reduction of parts of the steps takes, and where these begin; where it reads no gradient.
        self._parts: Any = None
        #: The second stream that has reduced the states of the latest forward pass.
        self._side: Any = None
        length = rules.segment_length(size.steps, chunk)
        serves = not (affine or walk.reverse or device.capturing) and elsewhere is None
        if serves and length < size.steps and device.shared_bytes is not None:
            begins = device.asarray(np.arange(0, size.steps, length)[:, None])
            self._parts = walk, chunk, every, length, begins, walk.lengths - begins
        self.scan = device.bind(
            KERNELS["chunk_scan"], *every, last, boundary, count + 1, *size.boundary_scalars, affine
        )
        self._check = device.bind(
            KERNELS["finite_check"], device.memory_of(boundary), self._flag, boundary.size
        )
        ends = boundary[1 - skipped :][:here]  # behind each chunk here; the first is the one before them
        self.expand = serial.backward(device, walk, gradient, ends, chunk, delta, self._entering_all)

    def __call__(self) -> None:
        self._flag[...] = 0
        if self._side is None or self._side is not self._device.side:
            self.reduce()
        self._side = None
        if self._receive is not None:
            self._receive()
        self.scan()
        if self._send is not None:
            self._send()
        self._check()
        self.expand()
        self._entering[...] = self._first
        self._again()

    def reduce_beside(self, forward: Any) -> bool:
        """Run a forward pass in segments, each followed by its reduction on the second stream of a captured
        step. Nothing runs where that does not serve, and the result is False.

        Law: states and maps have the bits of one launch each.
        """
        device, side = self._device, self._device.side
        if side is None or self._parts is None or not forward.is_launch:
            return False
        walk, chunk, (maps, exponents, offsets), length, begins, lengths = self._parts
        side.join()  # an earlier reduction reads the states
        device.xp.subtract(walk.lengths, begins, out=lengths)
        for number, begin in enumerate(range(0, walk.size.steps, length)):
            end = min(begin + length, walk.size.steps)
            segment = replace(
                walk, size=replace(walk.size, steps=end - begin), lengths=lengths[number],
                initial=walk.before(begin), projected=walk.projected[begin:end], state=walk.state[begin:end],
                gates=walk.gates[begin:end],
            )  # fmt: skip
            serial.forward_in_blocks(device, segment)()
            so_far = replace(
                walk, size=replace(walk.size, steps=end), state=walk.state[:end], gates=walk.gates[:end]
            )
            first = max(1, begin // chunk)
            those = slice(first - 1, so_far.size.chunks(chunk) - 1)
            side.fork(bind_reduce(device, so_far, None, chunk, first, maps[those], exponents[those], offsets))
        self._side = side
        return True

    @property
    def reran(self) -> bool:
        """Whether the latest finished call ran again serially."""
        return bool(self._device.to_host(self._flag)[0])


class TimeScan:
    """A backward pass of one walk, bound to its arrays: calling it fills `delta` and `entering`.

    Law: every method and chunk length gives the same gradients up to rounding. Where a boundary is not
    finite, as where the products of Jacobians left the range and the gradients might not have, the
    pass is run again serially, and `description` says so. The device decides that by a flag of its own:
    the serial walk is always launched, and returns at once where it is not wanted. So the host waits for
    nothing, and a call can be captured into a graph. On a GPU `description` is as a rule of the call before.

    Raises DeviceError where memory does not suffice.

    Parameters
    ----------
    gradient
        (T, H, B), by the output of every step; None where there is none.
    last
        (P H, B), the gradient with respect to the state after the last step.
    delta
        Output array, (T, cell.deltas * H, B).
    entering
        Output array, (P H, B), the gradient with respect to the initial state.
    method
        "auto", "bp", "linear" (serial), "blelloch" or "hybrid" (by chunks), as net.backward takes them.
    chunk
        Its length in steps; by default that of the rules, or the quickest measured on a GPU.
    by_chunks
        The scan by chunks, where that was chosen.
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
    ) -> None:
        size = walk.size
        way = WAYS[method]

        def scratch(other: Walk, length: int) -> TimeScan:
            by_output, boundary, *results = scratch_backward(device, other)
            how = ("blelloch", length) if length else ("bp", None)
            return TimeScan(device, other, by_output, boundary, *results, *how)

        self.choice = choose_walk(
            device, size, "backward", way, chunk=chunk, make=scratch,
            by_rule=rules.backward_by_chunks(size.steps, size.batch, size.state),
        )  # fmt: skip
        self.by_chunks: ChunkScan | None = None
        if self.choice.method == "serial":
            self._run = serial.backward(device, walk, gradient, last, size.steps, delta, entering)
            return
        again = partial(serial.backward_in_blocks, device, walk, gradient, last, size.steps, delta, entering)
        self._run = self.by_chunks = ChunkScan(
            device, walk, gradient, last, delta, entering, self.choice.chunk, again
        )

    def __call__(self) -> None:
        self._run()

    @property
    def description(self) -> str:
        """The method of the latest finished call, and the reason."""
        if self.by_chunks is None:
            return f"{self.choice}{serial.describe_launch(self._run)}"
        return f"{self.choice}{RERAN * self.by_chunks.reran}"

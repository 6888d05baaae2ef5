"""How a walk goes forward in time: serially, or over chunks by Newton's iteration.

Newton's iteration finds all states at once. The unknowns are the states at the boundaries of chunks. An
iteration walks every chunk from its assumed state, all chunks at once, and sees by how much its end misses
the state assumed for the next one. The products of the chunks' Jacobians say how those ends move with the
assumed states, so the linearised correction is an affine scan over the chunks, forward in time:
step_k = mismatch_k + M_kᵀ step_{k-1}. With chunks of one step this is DEER (Lim et al. 2024). Longer chunks
need fewer iterations and a smaller scan, since nothing is linearised inside a chunk (multiple shooting).

Damping as in Gonzalez et al. 2024: where the mismatch grows, the Jacobians are scaled down; at scale 0
the iteration is Picard's. Whatever the scale, each iteration makes at least one more chunk exact.

A mismatch says little of the states' error, which is the mismatches carried on by the products of Jacobians:
to first order the undamped correction, so the correction is what must be small. Then chunks are walked again,
each from the end of the one before, until no state at a boundary changes: every chunk then starts from what
the chunk before it gave, as in the serial pass. Where the dynamics contract, a walk or two do. Where rounding
never settles, the serial pass is run.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.devices.order import Bound
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.timescan import serial
from bppsa_cupy.timescan.chunked import bind_reduce
from bppsa_cupy.timescan.ways import Walk, WalkSize, choose_walk

#: Iterations after which the serial pass is run; and what a correction may be when they end, in units of the
#: dtype's rounding times the state's size.
MAXIMAL_ITERATIONS = 16
TOLERANCE = 16.0
#: Walks in which the boundaries are to settle, or of short chunks as many as take so many steps.
SETTLING_WALKS, SETTLING_STEPS = 32, 64


class ChunkedForward:
    """A forward pass of one walk by chunks, bound to its arrays: calling it fills `state`, `gates` and
    `final`.

    Law: the states are the serial pass's to the bit. Where the iteration does not converge, boundaries do not
    settle, or values leave the range, the serial pass is run.

    Parameters
    ----------
    chunk
        Steps per chunk; at least 1.

    Attributes
    ----------
    converged
        Whether the chunks gave the states of the latest call; if not, the serial pass did.
    iterations
        Newton's steps; the walks in which boundaries settle come on top.
    chunks
        Chunks that ran together.
    """

    converged: bool
    iterations: int

    def __init__(self, device: Device, walk: Walk, chunk: int) -> None:
        self._device, self._walk = device, walk
        self._chunk, self.chunks = chunk, walk.size.chunks(chunk)
        self._tolerance = TOLERANCE * float(np.finfo(walk.state.dtype).eps)
        self._serial = serial.forward(device, walk)
        if self.chunks < 2:
            return
        # The same walk with chunks as samples: K B samples of `chunk` steps, sample (k, b) at k B + b.
        chunks = self.chunks
        dtype, rows, batch = walk.state.dtype, walk.state.shape[1], chunks * walk.size.batch
        size = replace(walk.size, steps=chunk, batch=batch)
        self._pieces = replace(
            walk, size=size, reverse=False, lengths=self._lengths(),
            initial=device.empty_walk((rows, batch), dtype),
            projected=device.empty_walk((chunk, walk.projected.shape[1], batch), dtype),
            state=device.empty_walk((chunk, rows, batch), dtype),
            gates=device.empty_walk((chunk, walk.gates.shape[1], batch), dtype),
            final=device.empty_walk((rows, batch), dtype),
        )  # fmt: skip
        maps = device.empty((size.batch, size.state, size.state), dtype)
        exponents = device.empty((size.batch, size.state), np.int32)
        self._maps = maps
        self._mismatch = device.arrange(device.zeros((chunks, rows, walk.size.batch), dtype))
        self._step = device.empty_walk((chunks, rows, walk.size.batch), dtype)
        none = device.empty(0, dtype)
        self._walk_pieces = serial.forward_in_blocks(device, self._pieces)
        self._reduce = bind_reduce(device, self._pieces, None, chunk, 0, maps, exponents, none)
        self._corrections = {
            damping: device.bind(
                KERNELS["newton_scan"], maps, exponents, self._mismatch, self._step, chunks,
                *walk.size.boundary_scalars, damping,
            )
            for damping in (1.0, 0.5, 0.0)
        }  # fmt: skip
        starts, ends = self._pieces.initial, self._pieces.final
        states, hidden, batch = walk.size.cell.states, walk.size.hidden, walk.size.batch
        self._found = device.empty((2, states, batch), dtype)
        self._miss = device.bind(
            KERNELS["newton_mismatch"], starts, ends, self._mismatch, chunks, rows, batch
        )
        self._judge = device.bind(
            KERNELS["newton_errors"], ends, self._mismatch, self._step, self._found, chunks, states, hidden,
            batch, self._tolerance, float(np.finfo(dtype).tiny),
        )  # fmt: skip
        self._advance = device.bind(
            KERNELS["newton_advance"], ends, self._mismatch, self._step, starts, chunks, rows, batch
        )
        self._linearise = device.sequence(
            [self._walk_pieces, self._miss, self._reduce, self._corrections[1.0], self._judge]
        )

    def __call__(self) -> None:
        converged, iterations = self.chunks > 1, 0
        if converged:
            with np.errstate(over="ignore", invalid="ignore"):  # where the serial pass is run
                converged, iterations = self._iterate()
        if converged:
            self._put()
        else:
            self._serial()
        self.converged, self.iterations = converged or self.chunks < 2, iterations

    @property
    def description(self) -> str:
        """Describes what the latest call ran."""
        end = "converged" if self.converged else "did not converge: run serially"
        return f"newton over {self.chunks} chunks: {end}, {self.iterations} iterations"

    def _iterate(self) -> tuple[bool, int]:
        """Newton's iteration: whether it gave the serial pass's states, and its steps."""
        walk, pieces = self._walk, self._pieces
        rows, batch, chunks = walk.state.shape[1], walk.size.batch, self.chunks
        # Lengths and input are copied into chunks, whose states before all but the first become 0.
        pieces.lengths[...] = self._lengths()
        by_step = walk.projected.shape[1:]
        padded = self._device.xp.zeros((chunks * self._chunk, *by_step), walk.projected.dtype)
        padded[: walk.size.steps] = self._in_steps(walk.projected)
        by_chunk = padded.reshape(chunks, self._chunk, *by_step).transpose(1, 2, 0, 3)
        pieces.projected.reshape(self._chunk, -1, chunks, batch)[...] = by_chunk
        starts, ends = (
            a.reshape(rows, chunks, batch).transpose(1, 0, 2) for a in (pieces.initial, pieces.final)
        )
        starts[...] = 0
        starts[0] = walk.initial
        damping, least = 1.0, float("inf")
        for iteration in count(1):
            self._linearise()
            # The largest undamped correction by the size of its state, and the largest mismatch by that of
            # its sample's largest state; NaN where one is not finite.
            largest = self._device.to_host(self._found).reshape(2, -1).max(1)
            error, mismatch = float(largest[0]) * self._tolerance, float(largest[1])
            # The first walk tells of the states that were guessed, not of any correction.
            if mismatch == 0 or (error <= self._tolerance and iteration > 1):
                return self._settles(starts, ends), iteration
            if iteration >= MAXIMAL_ITERATIONS or mismatch != mismatch:
                break
            damping = 1.0 if mismatch < least else 0.5 if damping == 1.0 else 0.0
            least = min(least, mismatch)
            if damping != 1.0:
                self._corrections[damping]()
            self._advance()
        return False, iteration

    def _settles(self, starts: Array, ends: Array) -> bool:
        """Walk the chunks from the ends of those before them until no boundary moves; whether that came."""
        xp = self._device.xp
        for _ in range(max(SETTLING_WALKS, -(-SETTLING_STEPS // self._chunk))):
            moved = xp.stack([xp.max(xp.abs(ends[:-1] - starts[1:]))])
            if self._device.to_host(moved)[0] == 0:
                return True
            starts[1:] = ends[:-1]
            self._walk_pieces()
        return False

    def _lengths(self) -> Array:
        """Steps of each chunk at which its sample is not padded; the padded ones are at its end.

        The padded steps of a reversed walk come first, so its steps are shifted: see `_in_steps`.
        """
        walk, xp = self._walk, self._device.xp
        begins = xp.arange(self.chunks, dtype=np.int64)[:, None] * self._chunk
        return xp.ascontiguousarray(xp.clip(walk.lengths[None, :] - begins, 0, self._chunk).reshape(-1))

    def _in_steps(self, values: Array) -> Array:
        """`values` by time as seen in the order of each sample's steps; its own inverse.

        A reversed walk passes its padded steps first, where nothing happens: they are moved after the
        others, so that step s of sample b is time lengths[b] - 1 - s.
        """
        walk, xp = self._walk, self._device.xp
        if not walk.reverse:
            return values
        steps = xp.arange(walk.size.steps, dtype=np.int64)[:, None]
        times = xp.where(steps < walk.lengths[None, :], walk.lengths[None, :] - 1 - steps, steps)
        return xp.take_along_axis(values, times[:, None, :], axis=0)

    def _put(self) -> None:
        """The chunks' states and gates where the serial pass would leave them."""
        walk, pieces = self._walk, self._pieces
        batch, chunks = walk.size.batch, self.chunks
        for ours, theirs in ((walk.state, pieces.state), (walk.gates, pieces.gates)):
            rows = ours.shape[1]
            by_step = theirs.reshape(self._chunk, rows, chunks, batch).transpose(2, 0, 1, 3)
            by_step = by_step.reshape(chunks * self._chunk, rows, batch)[: walk.size.steps]
            ours[...] = self._in_steps(by_step)
        if walk.reverse:  # the padded steps come before the others: their state is the initial one
            times = self._device.xp.arange(walk.size.steps)[:, None, None]
            walk.state[...] = self._device.xp.where(times < walk.lengths, walk.state, walk.initial)
        walk.final[...] = pieces.final.reshape(-1, chunks, batch)[:, -1]


class TimeForward:
    """A forward pass of one walk, bound to its arrays: calling it fills `state`, `gates` and `final`.

    Parameters
    ----------
    method
        See `choose_forward`.
    """

    def __init__(self, device: Device, walk: Walk, method: str) -> None:
        chunk, self._reason = choose_forward(device, walk.size, method)
        self._call: Any = ChunkedForward(device, walk, chunk) if chunk else serial.forward(device, walk)
        #: Whether it runs by chunks, so that the host waits for the result.
        self.iterates = chunk > 0
        #: Whether it is one launch of independent blocks.
        self.is_launch = isinstance(self._call, Bound)

    def __call__(self) -> None:
        self._call()

    @property
    def description(self) -> str:
        """The method of the latest call, and the reason."""
        how = self._call.description if self.iterates else f"serial{serial.describe_launch(self._call)}"
        return f"{how} ({self._reason})"


def choose_forward(device: Device, size: WalkSize, method: str = "auto") -> tuple[int, str]:
    """The chunk length of a forward pass by chunks, and why; 0 for the serial pass.

    Parameters
    ----------
    method
        "serial", "newton", or "auto": serial on the host; on a GPU the quicker one, as measured.
    """

    def scratch(walk: Walk, length: int) -> Launch:
        return ChunkedForward(device, walk, length) if length else serial.forward(device, walk)

    way = method if method in ("auto", "serial") else "chunked"
    choice = choose_walk(device, size, "forward", way, make=scratch)
    return (0 if choice.method == "serial" else choice.chunk), choice.reason

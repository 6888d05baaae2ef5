"""What the warps of recurrent kernels do in a step on a GPU: fitted to machine code for sm_90, float32.

The fits are near what docs/results/machine-code.json has, as a test compares; the forward walk of a cell
without tanh or sigmoid is quicker than its fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from bppsa_cupy.processors.sizes import WalkSize
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.frames.kernels import (
    MANY,
    REDUCTION_WIDTH,
    THREADS,
    TILE_ROWS,
    WARP,
    backward_products,
    forward_products,
    real_of,
)
from bppsa_cupy.raw_kernels.frames.places import block_cycles, is_wide, registers_of, step_instructions
from bppsa_cupy.raw_kernels.frames.steps import STAGED_BYTES, backward_shares, forward_shares
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import LaunchShape, Layout, Variant

#: Kinds of kernels, whose counts may be off by a factor each: walks with weights in registers, in those and
#: the shared memory of whole blocks, or in memory, reductions with columns in registers or in the shared
#: memory of blocks, a step that is a launch, scans.
KINDS = (
    "forward", "forward by blocks", "forward in memory", "backward", "backward by blocks",
    "backward in memory", "reduce", "reduce in blocks", "step", "scan",
)  # fmt: skip


class Warps(NamedTuple):
    """The warps of a launch.

    number        in all
    cycles        of one of them alone in a step, its loads from L2
    instructions  that it issues in a step
    registers     of a thread
    kind          of kernel, of `KINDS`
    """

    number: int
    cycles: float
    instructions: float
    registers: float
    kind: str


def walking(size: WalkSize, verb: str, chunks: int, shared_bytes: int) -> Warps:
    """The walk "forward" or "backward", of all chunks at once.

    shared_bytes  that a block can have
    """
    forward = verb == "forward"
    layout, shape = _walk(size, verb, chunks, shared_bytes)
    gates, count = size.cell.gates, _warps(shape)
    if not layout.units:
        together = chunks * size.walks >= MANY
        numbers = _in_memory(gates, size.units, forward, together)
        return Warps(count, *numbers, f"{verb} in memory")
    if is_wide(layout):
        sums = (forward_products if forward else backward_products)(size.cell).sums
        numbers = (
            block_cycles(layout, sums, size.itemsize),
            step_instructions(layout, sums, size.itemsize),
            registers_of(layout, sums, size.itemsize),
        )
        return Warps(count, *numbers, f"{verb} by blocks")
    terms = layout.width / layout.lanes
    blocks, lanes = layout.units * layout.lanes > WARP, layout.lanes > 1
    if forward:
        cycles = 50 + 70 * gates + 1.3 * terms + 50 * blocks + 60 * lanes
        return Warps(count, cycles, 12 + gates * (28 + 1.15 * terms), 65 + 1.25 * gates * terms, verb)
    cycles = 5 + 60 * gates + 1.4 * terms + 40 * blocks + 25 * lanes
    return Warps(count, cycles, 8 + gates * (17 + 1.3 * terms), min(224, 85 + 1.9 * gates * terms), verb)


def _walk(size: WalkSize, verb: str, chunks: int, shared_bytes: int) -> tuple[Layout, LaunchShape]:
    """A walk of all chunks. A forward kernel knows no chunks: each is as one more sample."""
    samples = size.batch * (chunks if verb == "forward" else 1)
    scalars = {
        "steps": size.steps, "hidden": size.units, "sets": size.heads, "batch": samples,
        "chunk": size.chunks(chunks),
    }  # fmt: skip
    return _launched(size.cell, verb, scalars, size.itemsize, shared_bytes)


def _in_memory(gates: int, hidden: int, forward: bool, together: bool) -> tuple[float, float, float]:
    """Cycles, instructions and registers of a walk whose weights are beyond a block: a thread sums `hidden`
    terms for each row it has: one row, or more where a block has fewer threads than there are rows. Samples
    that walk together share the loads, which are what is waited for."""
    terms = hidden * max(1.0, gates * hidden / THREADS)
    more = 2 if together else 1
    if forward:
        return 2400 + 26 * terms, more * (350 + 7 * terms), 114
    return 4800 + 46 * terms, more * (500 + 21 * terms), 120


def stepping(size: WalkSize, verb: str) -> tuple[Warps, float]:
    """One step "forward" or "backward" that is a launch, and the bytes that its blocks read: weights as often
    as there are tiles of samples, and what they are multiplied with as often as there are bands of units."""
    cell, units, wide = size.cell, size.units, size.itemsize / 4
    forward = verb == "forward"
    shares = forward_shares(cell) if forward else backward_shares(cell)
    blocks, samples = shares.blocks(units, size.heads, size.batch), shares.samples * shares.tiles
    rows = shares.units * (cell.sums if forward else 1)
    vectors = shares.parts * units * samples
    # Terms of a lane, of each row a load and as many multiply-adds as a warp has samples; copies of a thread.
    terms, copies = rows * -(-units // WARP), vectors / (WARP * shares.warps)
    turns = -(-vectors * size.itemsize // STAGED_BYTES)
    cycles = 1000 + 600 * turns + 12 * copies * wide + 24.4 * terms * wide
    read = blocks * (shares.units * shares.groups * cell.sums * units + vectors) * size.itemsize
    instructions = 400 + 12 * copies + 11.25 * terms * wide
    return Warps(blocks * shares.warps, cycles, instructions, 170, "step"), read


def reducing(size: WalkSize, chunk: int, shared_bytes: int, first: int = 1) -> Warps:
    """The products of the Jacobians of every chunk from number `first` on."""
    cell, hidden = size.cell, size.units
    layout, shape = _reduction(size, chunk, shared_bytes, first)
    if not layout.units:
        # Rows of a step from L2, and six barriers; then each unit of a tile: its rows' weights from L2, its
        # columns from shared memory, the Jacobian's entries, and the products.
        entry = 1 + 9 * (cell.gates - 1)
        each = TILE_ROWS * (cell.tile_columns * cell.states + entry) + 10
        registers = 255 if cell.gates > 1 else 128
        cycles, issued = 1000 + 2.2 * hidden * each, 200 + hidden * each
        return Warps(_warps(shape), cycles, issued, registers, "reduce in blocks")
    instructions = REDUCTION_WIDTH**2 * (cell.columns * cell.states + 2.2 * cell.gates) - 130
    return Warps(_warps(shape), instructions + waiting(cell), instructions, 230, "reduce")


def shared_by_chunks(size: WalkSize, verb: str, chunk: int, shared_bytes: int) -> Iterator[tuple[str, int]]:
    """The kernels of a walk by chunks, "forward" by Newton's iteration or "backward", and the bytes of
    dynamic shared memory that a block of each takes where it can have `shared_bytes`."""
    chunks, name = size.chunks(chunk), size.cell.name
    yield f"{name}_{verb}", _walk(size, verb, max(1, chunks), shared_bytes)[1].shared_bytes
    if chunks < 2:
        return
    yield f"{name}_reduce", _reduction(size, chunk, shared_bytes)[1].shared_bytes
    scan = "newton_scan" if verb == "forward" else "chunk_scan"
    scalars = dict(zip(("states", "hidden", "sets", "batch"), size.boundary_scalars, strict=True))
    yield scan, KERNELS[scan].launch({**scalars, "itemsize": size.itemsize}).shared_bytes


def _reduction(size: WalkSize, chunk: int, shared_bytes: int, first: int = 1) -> tuple[Layout, LaunchShape]:
    scalars = {
        "steps": size.steps, "hidden": size.units, "sets": size.heads, "batch": size.batch, "chunk": chunk,
        "first": first, "per_step": 0,
    }  # fmt: skip
    return _launched(size.cell, "reduce", scalars, size.itemsize, shared_bytes)


def waiting(cell: CellForm) -> float:
    """Cycles that a warp of a reduction in registers waits in a step: one row of units is fetched a step
    ahead; more are read a unit ahead where there are registers for them (reduce_registers.cuh)."""
    rows = cell.kept + len(cell.after) + len(cell.before)
    if rows == 1:
        return 600
    return 1700 if cell.states == 1 and (cell.gates > 2 or rows < 4) else 4500


def _launched(
    cell: CellForm, verb: str, scalars: dict[str, int], itemsize: int, shared_bytes: int
) -> tuple[Layout, LaunchShape]:
    kernel = kernels_of(cell)[verb]
    given = {**scalars, "itemsize": itemsize, "shared_bytes": shared_bytes}
    return kernel.variant_for(Variant(real_of(itemsize)), given).layout, kernel.launch(given)


def _warps(shape: LaunchShape) -> int:
    return math.prod(shape.grid) * -(-math.prod(shape.block) // WARP)

"""Walks of the whole grid, whose blocks share out the hidden units: tiles and kernels.

A cooperative launch has at most as many blocks as run at once, one per multiprocessor. A block keeps its
weights in shared memory for the whole walk (frames/cuda/grid.cuh): those of its units, or, where several
blocks share out the terms of a sum, those of all their units and of its own terms.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.frames.kernels import backward_products, filled, forward_products
from bppsa_cupy.raw_kernels.frames.places import PACK_BYTES, WARP
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import Kernel, LaunchShape, read_parameters, read_source

#: Warps of a block; sums of a thread at most, in 4-byte words; pairs of a unit and a sample of a thread at
#: most; packs of terms of a thread that a buffer holds, and buffers; blocks that share out a sum's terms.
WARPS, MOST_SUMS, MOST_PAIRS, STAGED, STAGES = 8, 64, 2, (8, 4, 2, 1), (6, 5, 4, 3, 2)
SHARES = (1, 2, 4, 8)
#: Clock cycles of a barrier of the grid with the reads after it; bytes that a multiprocessor reads of the L2
#: cache in a cycle while all read.
BARRIER_CYCLES, L2_BYTES = 2500, 24


class Tile(NamedTuple):
    """How a block shares out a step.

    Attributes
    ----------
    units : int
        Hidden units that a block goes on with.
    shares : int
        Blocks that share out the terms of the sums of all their units.
    thread_units, samples : int
        Units and samples of a thread.
    unit_lanes, sample_lanes : int
        Lanes of a warp with other units, and with other samples; the rest have other terms.
    sample_warps : int
        Warps of a block with other samples; the rest have other terms.
    terms : int
        Packs of terms of each sample that a buffer holds.
    stages : int
        Buffers.
    """

    units: int
    shares: int
    thread_units: int
    samples: int
    unit_lanes: int
    sample_lanes: int
    sample_warps: int
    terms: int
    stages: int

    @property
    def term_lanes(self) -> int:
        """Lanes of a warp with other terms."""
        return WARP // (self.unit_lanes * self.sample_lanes)

    @property
    def parts(self) -> int:
        """How many threads share out the terms of a block's sum."""
        return WARPS // self.sample_warps * self.term_lanes

    @property
    def block_samples(self) -> int:
        """Samples that a block takes at a time."""
        return self.samples * self.sample_lanes * self.sample_warps

    def blocks(self, hidden: int) -> int:
        """Blocks of a grid."""
        return -(-hidden // (self.units * self.shares)) * self.shares


def packs_of_terms(tile: Tile, inputs: int, hidden: int, itemsize: int) -> int:
    """Packs of 16 bytes of a block's terms of a sum."""
    return -(-inputs * -(-hidden * itemsize // PACK_BYTES) // tile.shares)


def shared_bytes_of(tile: Tile, sums: int, inputs: int, hidden: int, itemsize: int) -> int:
    """Bytes of shared memory of a block: its weights, and the larger of staged terms and sums of parts."""
    weights = packs_of_terms(tile, inputs, hidden, itemsize) * sums * tile.units * tile.shares * PACK_BYTES
    staged = tile.stages * tile.block_samples * (tile.terms + tile.term_lanes) * PACK_BYTES
    parts = tile.parts * sums * tile.block_samples * tile.unit_lanes * tile.thread_units * itemsize
    return weights + max(staged, parts)


@functools.cache
def tile_of(
    sums: int, inputs: int, hidden: int, batch: int, itemsize: int, blocks: int, shared_bytes: int,
    shares: tuple[int, ...] = SHARES,
) -> Tile | None:  # fmt: skip
    """The tile whose step takes the fewest clock cycles by `cycles_of`, of those the one that copies the most
    terms ahead; None where the weights do not fit."""
    fitting = (
        tile for tile in _tiles(sums, hidden, batch, itemsize, blocks, shares)
        if shared_bytes_of(tile, sums, inputs, hidden, itemsize) <= shared_bytes
    )  # fmt: skip

    def order(tile: Tile) -> tuple[int, int, int]:
        packs = packs_of_terms(tile, inputs, hidden, itemsize)
        ahead = min(packs, tile.terms * (tile.stages - 1))
        return cycles_of(tile, sums, packs, batch, itemsize), -ahead, -tile.terms

    return min(fitting, key=order, default=None)


@functools.cache
def tiles_of(
    sums: int, inputs: int, hidden: int, batch: int, itemsize: int, blocks: int, shared_bytes: int
) -> tuple[Tile, ...]:
    """A tile for each number of shares, the quickest by `cycles_of` first. A GPU compiles and measures them
    all: those that would take twice as long are left out."""
    cycles: dict[Tile, int] = {}
    for shares in SHARES:
        tile = tile_of(sums, inputs, hidden, batch, itemsize, blocks, shared_bytes, (shares,))
        if tile is not None:
            packs = packs_of_terms(tile, inputs, hidden, itemsize)
            cycles[tile] = cycles_of(tile, sums, packs, batch, itemsize)
    return tuple(
        tile for tile in sorted(cycles, key=cycles.__getitem__) if cycles[tile] < 2 * min(cycles.values())
    )


def cycles_of(tile: Tile, sums: int, packs: int, batch: int, itemsize: int) -> int:
    """About how many clock cycles a step takes, where a block has so many packs of terms."""
    pairs = -(-tile.units * tile.block_samples // (WARPS * WARP))
    held = tile.thread_units * sums
    reads = held * _cycles_of_read(tile, 1, 0, sums * tile.units * tile.shares)
    reads += tile.samples * _cycles_of_read(tile, 0, tile.terms + tile.term_lanes, 1)
    each = held * tile.samples + reads
    products = -(-packs // tile.parts) * each
    of_sums = held * tile.samples + tile.parts * sums * pairs * tile.shares
    # Copies of one stage run while the one before is added up: a half of them is waited for.
    waits = min(batch, tile.block_samples) * packs * PACK_BYTES // (2 * L2_BYTES)
    if tile.shares > 1:
        handed = 2 * min(batch, tile.block_samples) * tile.units * tile.shares * sums * itemsize
        waits += BARRIER_CYCLES + handed // L2_BYTES
    return -(-batch // tile.block_samples) * ((products + of_sums) * WARPS + waits)


def _cycles_of_read(tile: Tile, by_unit: int, by_sample: int, by_term: int) -> int:
    """Cycles in which each lane of a warp reads a pack of shared memory; packs of other units, samples and
    terms are so far apart."""
    return _wavefronts(tile.unit_lanes, tile.sample_lanes, by_unit, by_sample % 8, by_term % 8)


@functools.cache
def _wavefronts(unit_lanes: int, sample_lanes: int, by_unit: int, by_sample: int, by_term: int) -> int:
    """A cycle serves half a warp where its lanes share packs with neighbours, else a quarter, and one pack of
    each of eight groups of banks."""
    pair = 2 if unit_lanes > 1 and sample_lanes > 1 else 1
    units, samples = unit_lanes // pair, sample_lanes // pair
    cycles = 0
    for begin in range(0, WARP, 8 * pair):
        packs = set()
        for lane in range(begin, begin + 8 * pair):
            rest = lane // pair**2
            unit = rest % units * pair + lane % pair
            sample = rest // units % samples * pair + lane // pair % pair
            term = lane // (unit_lanes * sample_lanes)
            group = (unit * by_unit + sample * by_sample + term * by_term) % 8
            packs.add((group, unit if by_unit else sample, term))
        cycles += max(Counter(group for group, *_ in packs).values())
    return cycles


def _tiles(
    sums: int, hidden: int, batch: int, itemsize: int, blocks: int, of_shares: tuple[int, ...]
) -> Iterator[Tile]:
    powers = (1, 2, 4, 8, 16, 32)
    for shares, thread_units, samples in itertools.product(of_shares, powers[:4], powers[:4]):
        groups = blocks // shares
        if not groups or thread_units * sums * samples * itemsize // 4 > MOST_SUMS:
            continue
        units = -(-hidden // (groups * shares))
        unit_lanes = 1 << (-(-units * shares // thread_units) - 1).bit_length()
        for sample_lanes, sample_warps in itertools.product(powers, powers[:4]):
            block_samples = samples * sample_lanes * sample_warps
            pairs = -(-units * block_samples // (WARPS * WARP))
            if unit_lanes * sample_lanes > WARP or pairs > MOST_PAIRS or block_samples > 8 * max(batch, 1):
                continue
            tile = Tile(units, shares, thread_units, samples, unit_lanes, sample_lanes, sample_warps, 0, 0)
            for staged, stages in itertools.product(STAGED, STAGES):
                if tile.parts * staged <= WARPS * WARP:
                    yield tile._replace(terms=tile.parts * staged, stages=stages)


def products_of(form: CellForm, verb: str) -> tuple[int, int]:
    """Sums of a unit in a step "forward" or "backward", and vectors that each of them multiplies."""
    products = (forward_products if verb == "forward" else backward_products)(form)
    return products.outputs, products.inputs


@functools.cache
def grid_kernel(form: CellForm, verb: str, tile: Tile) -> Kernel:
    """The walk "forward" or "backward" of a cell by a grid of blocks with this tile."""
    sums, inputs = products_of(form, verb)

    def launch(s: Mapping[str, Any]) -> LaunchShape:
        shared = shared_bytes_of(tile, sums, inputs, s["hidden"], s["itemsize"])
        return LaunchShape((tile.blocks(s["hidden"]), 1, 1), (WARPS * WARP, 1, 1), shared)

    words = {f"TILE_{name.upper()}": str(value) for name, value in tile._asdict().items()}
    words["TILE_PARTIALS"] = str(tile.shares if tile.shares > 1 else 0)
    name, text = f"{form.name}_{verb}_grid", read_source(f"frames/cuda/{verb}_grid.cu")
    text = filled(text, form, words)
    twin = TWINS[verb](kernels_of(form)[verb].twin)
    return Kernel(name, read_parameters(name, text), launch, twin, text, cooperative=True)


def exchanged_sums(kernel: Kernel, hidden: int, batch: int) -> int:
    """Elements of the array in which the blocks of a grid exchange sums."""
    size = next(parameter.size for parameter in kernel.parameters if parameter.name == "partial")
    return int(eval(size, {"hidden": hidden, "batch": batch}))


def _make_forward(walk: Callable[..., None]) -> Callable[..., None]:
    """The twin of NAME_forward_grid, from the one of NAME_forward."""

    def forward_grid(*arguments: Any) -> None:
        *arrays, _, _, steps, hidden, batch, reverse = arguments
        walk(*arrays, steps, hidden, batch, reverse)

    return forward_grid


def _make_backward(walk: Callable[..., None]) -> Callable[..., None]:
    """The twin of NAME_backward_grid, from the one of NAME_backward through one chunk."""

    def backward_grid(*arguments: Any) -> None:
        *arrays, delta, entering, _, _, steps, hidden, batch, per_step, reverse = arguments
        nothing = arrays[-1][:0]
        walk(*arrays, nothing, delta, entering, steps, hidden, batch, max(1, steps), per_step, reverse, 0)

    return backward_grid


TWINS = {"forward": _make_forward, "backward": _make_backward}

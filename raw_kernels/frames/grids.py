"""Walks of the whole grid, whose blocks share out the hidden units: tiles and kernels.

A cooperative launch has at most as many blocks as run at once, one per multiprocessor. A block keeps the
weights of its units in shared memory for the whole walk (frames/cuda/grid.cuh).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.frames.kernels import backward_products, filled, forward_products
from bppsa_cupy.raw_kernels.frames.places import PACK_BYTES, WARP
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import Kernel, LaunchShape, read_parameters, read_source

#: Warps of a block; sums of a thread at most, in 4-byte words; pairs of a unit and a sample of a thread at
#: most; packs of terms of a thread that are staged at a time, the most first.
WARPS, MOST_SUMS, MOST_PAIRS, STAGED = 8, 32, 2, (8, 4, 2, 1)


class Tile(NamedTuple):
    """How a block shares out a step.

    Attributes
    ----------
    units : int
        Hidden units of a block.
    thread_units, samples : int
        Units and samples of a thread.
    unit_lanes, sample_lanes : int
        Lanes of a warp with other units, and with other samples; the rest have other terms.
    terms : int
        Packs of terms of each sample that are staged at a time.
    """

    units: int
    thread_units: int
    samples: int
    unit_lanes: int
    sample_lanes: int
    terms: int

    @property
    def parts(self) -> int:
        """How many threads share out the terms of a sum."""
        return WARPS * WARP // (self.unit_lanes * self.sample_lanes)

    @property
    def block_samples(self) -> int:
        """Samples that a block takes at a time."""
        return self.samples * self.sample_lanes


def packs_of_terms(hidden: int, inputs: int, itemsize: int) -> int:
    """Packs of 16 bytes of the terms of a sum."""
    return inputs * -(-hidden * itemsize // PACK_BYTES)


def shared_bytes_of(tile: Tile, sums: int, inputs: int, hidden: int, itemsize: int) -> int:
    """Bytes of shared memory of a block: its weights, and the larger of staged terms and sums of parts."""
    weights = packs_of_terms(hidden, inputs, itemsize) * sums * tile.units * PACK_BYTES
    staged = 2 * tile.block_samples * (tile.terms + 1) * PACK_BYTES
    parts = tile.parts * sums * tile.block_samples * tile.unit_lanes * tile.thread_units * itemsize
    return weights + max(staged, parts)


@functools.cache
def tile_of(
    sums: int, inputs: int, hidden: int, batch: int, itemsize: int, blocks: int, shared_bytes: int
) -> Tile | None:
    """The tile with the fewest reads of shared memory per step; None where the weights do not fit."""
    packs = packs_of_terms(hidden, inputs, itemsize)

    def reads(tile: Tile) -> tuple[int, int]:
        turns = -(-batch // tile.block_samples)
        of_thread = -(-packs // tile.parts) * (tile.thread_units * sums + tile.samples)
        of_sums = tile.parts * sums * -(-tile.units * tile.block_samples // (WARPS * WARP))
        return turns * (of_thread + of_sums), -tile.terms

    fitting = (
        tile for tile in _tiles(sums, -(-hidden // blocks), itemsize)
        if shared_bytes_of(tile, sums, inputs, hidden, itemsize) <= shared_bytes
    )  # fmt: skip
    return min(fitting, key=reads, default=None)


def _tiles(sums: int, units: int, itemsize: int) -> Iterator[Tile]:
    for thread_units in (1, 2, 4):
        unit_lanes = 1 << (-(-units // thread_units) - 1).bit_length()
        for sample_lanes in (1, 2, 4, 8, 16, 32):
            for samples in (1, 2, 4, 8):
                held = thread_units * sums * samples * itemsize // 4
                pairs = -(-units * samples * sample_lanes // (WARPS * WARP))
                if unit_lanes * sample_lanes > WARP or held > MOST_SUMS or pairs > MOST_PAIRS:
                    continue
                tile = Tile(units, thread_units, samples, unit_lanes, sample_lanes, 0)
                yield from (tile._replace(terms=tile.parts * staged) for staged in STAGED)


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
        return LaunchShape((math.ceil(s["hidden"] / tile.units), 1, 1), (WARPS * WARP, 1, 1), shared)

    words = {f"TILE_{name.upper()}": str(value) for name, value in tile._asdict().items()}
    name, text = f"{form.name}_{verb}_grid", read_source(f"frames/cuda/{verb}_grid.cu")
    text = filled(text, form, words)
    twin = TWINS[verb](kernels_of(form)[verb].twin)
    return Kernel(name, read_parameters(name, text), launch, twin, text, cooperative=True)


def _make_forward(walk: Callable[..., None]) -> Callable[..., None]:
    """The twin of NAME_forward_grid, from the one of NAME_forward."""

    def forward_grid(*arguments: Any) -> None:
        *arrays, _, steps, hidden, batch, reverse = arguments
        walk(*arrays, steps, hidden, batch, reverse)

    return forward_grid


def _make_backward(walk: Callable[..., None]) -> Callable[..., None]:
    """The twin of NAME_backward_grid, from the one of NAME_backward through one chunk."""

    def backward_grid(*arguments: Any) -> None:
        *arrays, delta, entering, _, steps, hidden, batch, per_step, reverse = arguments
        nothing = arrays[-1][:0]
        walk(*arrays, nothing, delta, entering, steps, hidden, batch, max(1, steps), per_step, reverse, 0)

    return backward_grid


TWINS = {"forward": _make_forward, "backward": _make_backward}

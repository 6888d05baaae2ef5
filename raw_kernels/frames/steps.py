"""Kernels of one step of a cell: how blocks share it out, and the twins, which are walks of one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape

#: Lanes of a warp, which hold a sum each; rows of weights that a warp goes through where a unit has fewer;
#: warps of a block, about, and groups and tiles of them at most; samples times parts of a block at most.
LANES, LEAST_ROWS, WARPS, MOST_GROUPS, MOST_TILES, MOST_VECTORS = 32, 4, 8, 4, 2, 32
#: Bytes of shared memory that hold what weights are multiplied with, in two buffers.
STAGED_BYTES = 32 * 1024
#: Gates of a cell at most: a lane has a sum of each.
MOST_GATES = 8


class Shares(NamedTuple):
    """How a step is shared out.

    units, samples  of a warp
    groups, tiles   warps of a block with other units, and with other samples
    parts           warps that a sum is shared out among
    """

    units: int
    samples: int
    groups: int
    tiles: int
    parts: int

    @property
    def warps(self) -> int:
        """Of a block."""
        return self.groups * self.tiles * self.parts

    def words(self) -> dict[str, str]:
        """The numbers by the words of the frames' texts."""
        names = ("WARP_UNITS", "WARP_SAMPLES", "BLOCK_GROUPS", "BLOCK_TILES")
        return {**dict(zip(names, map(str, self), strict=False)), "STAGED": str(STAGED_BYTES)}

    def launch(self, scalars: Mapping[str, Any]) -> LaunchShape:
        blocks = -(-scalars["hidden"] // (self.units * self.groups))
        blocks *= -(-scalars["batch"] // (self.samples * self.tiles))
        return LaunchShape((min(blocks, MAXIMAL_GRID), 1, 1), (LANES * self.warps, 1, 1))


def shares_of(rows: int, parts: int) -> Shares:
    """The shares where a unit has so many rows of weights, and each row so many parts."""
    units = max(1, LEAST_ROWS // rows)
    samples = LANES >> (units * rows - 1).bit_length()
    while samples * parts > MOST_VECTORS:
        units, samples = 2 * units, samples // 2
    groups = max(1, min(MOST_GROUPS, WARPS // parts))
    tiles = max(1, min(MOST_TILES, WARPS // (parts * groups)))
    return Shares(units, samples, groups, tiles, parts)


def forward_shares(form: CellForm) -> Shares:
    """A unit has a row a recurrent gate."""
    return shares_of(form.sums, 1)


def backward_shares(form: CellForm) -> Shares:
    """A unit has one row, a part of it for each recurrent gate."""
    return shares_of(1, form.sums)


def make_forward_step(walk: Callable[..., None]) -> Callable[..., None]:
    """The twin of NAME_forward_step, from the one of NAME_forward."""

    def forward_step(
        projected, weight_hh, bias_hh, unit, before, lengths, state, gates, time, hidden, batch
    ):  # fmt: skip
        walk(
            projected, weight_hh, bias_hh, unit, before, np.clip(lengths - time, 0, 1), state, gates,
            np.empty_like(before), 1, hidden, batch, 0,
        )  # fmt: skip

    return forward_step


def make_backward_step(form: CellForm, walk: Callable[..., None]) -> Callable[..., None]:
    """The twin of NAME_backward_step, from the one of NAME_backward: without weights, that one hands on
    nothing through W_hh."""

    def backward_step(
        state, gates, before, weight, unit, gradient, later, carried, lengths, delta, entering, time, hidden,
        batch, per_step,
    ):  # fmt: skip
        boundary = carried.copy()
        through = later.reshape(form.deltas, hidden, batch)[list(form.recurrent_rows)]
        handed = weight.reshape(hidden, -1) @ through.reshape(form.sums * hidden, batch)
        boundary[: handed.size] += handed.reshape(-1)
        walk(
            state, gates, before, np.zeros_like(weight), unit, gradient, boundary,
            np.clip(lengths - time, 0, 1), lengths[:0], delta, entering, 1, hidden, batch, 1, per_step, 0, 0,
        )  # fmt: skip

    return backward_step

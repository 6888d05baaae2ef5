"""Partial sums of a weight's and a bias's gradient over steps and samples."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape, kernel
from bppsa_cupy.raw_kernels.twins.batched import load_some
from bppsa_cupy.raw_kernels.twins.lane_products import BLOCK, add_outer
from bppsa_cupy.raw_kernels.twins.lanes import LANES, never_inlined, store
from bppsa_cupy.system.compiled import compiled

#: Blocks of lanes from which on a sum runs over those of one step, else over steps.
MANY = 8


@compiled()
def _gather(source, place, spacing, step, rows, steps, count, few):
    """Copy `count` samples of rows of steps to lanes, few (steps, rows, LANES)."""
    target = np.uint64(0)
    for s in range(np.uint64(steps)):
        for r in range(np.uint64(rows)):
            store(few, target, load_some(source, place + s * step + r * spacing, count))
            target += np.uint64(LANES)


@compiled()
def _block(
    delta, delta_place, delta_step, rows, values, value_place, value_step, columns, steps, batch, ones,
    few_deltas, few_values, sums,
):  # fmt: skip
    B, L, none = np.uint64(batch), np.uint64(LANES), np.uint64(0)
    full, count = batch // LANES, B % L
    whole = B - count
    if full >= MANY:
        # The samples of one step lie side by side; those of several steps would share few cache sets.
        for step in range(np.uint64(steps)):
            add_outer(
                delta, delta_place + step * delta_step, B, L, rows, values, value_place + step * value_step,
                B, L, columns, full, ones, sums,
            )  # fmt: skip
    else:
        for first in range(none, whole, L):
            add_outer(
                delta, delta_place + first, B, delta_step, rows, values, value_place + first, B, value_step,
                columns, steps, ones, sums,
            )  # fmt: skip
    if count:
        _gather(delta, delta_place + whole, B, delta_step, rows, steps, count, few_deltas)
        _gather(values, value_place + whole, B, value_step, columns, steps, count, few_values)
        add_outer(
            few_deltas, none, L, np.uint64(rows) * L, rows, few_values, none, L, np.uint64(columns) * L,
            columns, steps, ones, sums,
        )  # fmt: skip


@compiled()
def _part(
    delta, values, initial, totals, steps, delta_rows, first, rows, value_rows, columns, batch, shifted,
    reverse, part, start, end,
):  # fmt: skip
    never_inlined()
    sums = np.zeros(rows * (columns + 1) * LANES, delta.dtype)
    ones = np.ones(LANES, delta.dtype)
    few_deltas = np.empty(BLOCK * rows * LANES, delta.dtype)
    few_values = np.empty(BLOCK * columns * LANES, delta.dtype)
    delta_step, value_step = np.uint64(delta_rows * batch), np.uint64(value_rows * batch)
    top = np.uint64(first * batch)
    if shifted:
        # The first step of the walk sees the initial state.
        t = steps - 1 if reverse else 0
        if start <= t < end:
            _block(
                delta, np.uint64(t) * delta_step + top, delta_step, rows, initial, np.uint64(0), value_step,
                columns, 1, batch, ones, few_deltas, few_values, sums,
            )  # fmt: skip
        start, end = (start, min(end, t)) if reverse else (max(start, 1), end)
    shift = (1 if reverse else -1) if shifted else 0
    for t in range(start, end, BLOCK):
        _block(
            delta, np.uint64(t) * delta_step + top, delta_step, rows, values,
            np.uint64(t + shift) * value_step, value_step, columns, min(BLOCK, end - t), batch, ones,
            few_deltas, few_values, sums,
        )  # fmt: skip
    width = np.uint64(rows * (columns + 1))
    for entry in range(width):
        total = sums[entry * np.uint64(LANES)]
        for lane in range(np.uint64(1), np.uint64(LANES)):
            total += sums[entry * np.uint64(LANES) + lane]
        totals[np.uint64(part) * width + entry] = total


@compiled(parallel=True)
def sequence_weight_gradient(
    delta, values, initial, sums, steps, delta_rows, first, rows, value_rows, columns, batch, parts,
    shifted, reverse,
):  # fmt: skip
    if parts == 1:
        _part(
            delta, values, initial, sums, steps, delta_rows, first, rows, value_rows, columns, batch,
            shifted, reverse, 0, 0, steps,
        )  # fmt: skip
    else:
        for part in prange(parts):
            start, end = steps * part // parts, steps * (part + 1) // parts
            _part(
                delta, values, initial, sums, steps, delta_rows, first, rows, value_rows, columns, batch,
                shifted, reverse, part, start, end,
            )  # fmt: skip


def _launch(s):
    blocks = s["parts"] * -(-s["rows"] // 32) * -(-(s["columns"] + 1) // 32)
    return LaunchShape((min(blocks, MAXIMAL_GRID), 1, 1), (256, 1, 1))


KERNEL = kernel(sequence_weight_gradient, _launch)

"""Sums of outer products over steps and samples with samples in the lanes, where their number fills them.

Nothing is copied, but each sum is LANES partial ones: for weights of few columns.
"""

import numpy as np

from bppsa_cupy.raw_kernels.twins.lane_products import BLOCK, add_outer
from bppsa_cupy.raw_kernels.twins.lanes import LANES, never_inlined
from bppsa_cupy.system.compiled import compiled

#: Blocks of lanes from which on a sum runs over those of one step, else over steps.
MANY = 8


@compiled()
def _block(
    delta, delta_place, delta_step, rows, values, value_place, value_step, columns, steps, batch, ones, sums
):  # fmt: skip
    B, L = np.uint64(batch), np.uint64(LANES)
    full = batch // LANES
    if full >= MANY:
        # The samples of one step lie side by side; those of several steps would share few cache sets.
        for step in range(np.uint64(steps)):
            add_outer(
                delta, delta_place + step * delta_step, B, L, rows, values, value_place + step * value_step,
                B, L, columns, full, ones, sums,
            )  # fmt: skip
    else:
        for lanes in range(np.uint64(0), B, L):
            add_outer(
                delta, delta_place + lanes, B, delta_step, rows, values, value_place + lanes, B, value_step,
                columns, steps, ones, sums,
            )  # fmt: skip


@compiled()
def gradient_by_samples(
    delta, values, initial, weights, biases, steps, delta_rows, first, rows, value_rows, columns, batch,
    shifted, reverse, start, end, target,
):  # fmt: skip
    """As `gradient_by_rows`, for a multiple of LANES samples."""
    never_inlined()
    sums = np.zeros(rows * (columns + 1) * LANES, delta.dtype)
    ones = np.ones(LANES, delta.dtype)
    delta_step, value_step = np.uint64(delta_rows * batch), np.uint64(value_rows * batch)
    top = np.uint64(first * batch)
    if shifted:
        # The first step of the walk sees the initial state.
        t = steps - 1 if reverse else 0
        if start <= t < end:
            _block(
                delta, np.uint64(t) * delta_step + top, delta_step, rows, initial, np.uint64(0), value_step,
                columns, 1, batch, ones, sums,
            )  # fmt: skip
        start, end = (start, min(end, t)) if reverse else (max(start, 1), end)
    shift = (1 if reverse else -1) if shifted else 0
    for t in range(start, end, BLOCK):
        _block(
            delta, np.uint64(t) * delta_step + top, delta_step, rows, values,
            np.uint64(t + shift) * value_step, value_step, columns, min(BLOCK, end - t), batch, ones, sums,
        )  # fmt: skip
    place = np.uint64(0)
    for row in range(target, target + rows):
        for column in range(columns + 1):
            total = sums[place]
            for lane in range(np.uint64(1), np.uint64(LANES)):
                total += sums[place + lane]
            place += np.uint64(LANES)
            if column < columns:
                weights[row * columns + column] = total
            else:
                biases[row] = total

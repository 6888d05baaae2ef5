"""Sums of outer products over steps and samples with samples in the lanes, where their number fills them.

Nothing is copied, but each sum is LANES partial ones: for weights of few columns.
"""

import numpy as np

from bppsa_cupy.raw_kernels.twins.products.lane_products import BLOCK, add_outer
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, never_inlined
from bppsa_cupy.system.compiled import compiled


@compiled()
def gradient_by_samples(
    delta, values, initial, weights, biases, products, shifted, reverse, start, end, target
):
    """As `gradient_by_rows`, for a multiple of LANES samples."""
    never_inlined()
    rows, columns, batch = products.rows, products.columns, products.batch
    sums = np.zeros(rows * (columns + 1) * LANES, delta.dtype)
    ones = np.ones(LANES, delta.dtype)
    delta_step, value_step = np.uint64(products.delta_rows * batch), np.uint64(products.value_rows * batch)
    B, blocks, top = np.uint64(batch), batch // LANES, np.uint64(products.first * batch)
    if shifted:
        # The first step of the walk sees the initial state.
        t = products.steps - 1 if reverse else 0
        if start <= t < end:
            add_outer(
                delta, np.uint64(t) * delta_step + top, B, delta_step, rows, initial, np.uint64(0), B,
                value_step, columns, 1, blocks, ones, sums,
            )  # fmt: skip
        start, end = (start, min(end, t)) if reverse else (max(start, 1), end)
    shift = (1 if reverse else -1) if shifted else 0
    # The samples of one step lie side by side; those of many steps would share few cache sets.
    at_once = max(1, BLOCK // blocks)
    for t in range(start, end, at_once):
        add_outer(
            delta, np.uint64(t) * delta_step + top, B, delta_step, rows, values,
            np.uint64(t + shift) * value_step, B, value_step, columns, min(at_once, end - t), blocks, ones,
            sums,
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

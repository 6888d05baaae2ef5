"""Sums of outer products over steps and samples as a matrix product, whose vectors hold rows of the deltas.

No lane is empty, whatever the batch, and a sum is one number: so weights of any size do. The deltas are
transposed on the way, a block of terms (a step's sample each) at a time.
"""

from typing import NamedTuple

import numpy as np

from bppsa_cupy.raw_kernels.twins.products.lane_products import BLOCK, add_outer
from bppsa_cupy.raw_kernels.twins.products.panels import (
    PANEL,
    aligned,
    places_of,
    rows_as_lanes,
)
from bppsa_cupy.raw_kernels.twins.products.tiles import DEPTH, ROWS, add_products, lanes_of
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, never_inlined
from bppsa_cupy.raw_kernels.twins.simd.squares import copy_transposed
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


class OuterProducts(NamedTuple):
    """The sizes of what is summed: `rows` rows of the deltas, from `first` on, times the values; otherwise as
    `sequence_weight_gradient` has them."""

    steps: int
    delta_rows: int
    first: int
    rows: int
    value_rows: int
    columns: int
    batch: int


@compiled()
def gradient_by_rows(delta, values, initial, weights, biases, products, shifted, reverse, start, end, target):
    """The sums over the steps start ... end - 1, as rows of `weights` and elements of `biases` from `target`
    on; `products` are OuterProducts, the rest arguments of `sequence_weight_gradient`."""
    never_inlined()
    rows, columns, batch = products.rows, products.columns, products.batch
    lanes, at_once = lanes_of(delta.itemsize), max(1, min(DEPTH // max(1, batch), end - start))
    vectors, terms = (rows + lanes - 1) // lanes, at_once * batch
    width, delta_step, value_step = vectors * lanes, products.delta_rows * batch, products.value_rows * batch
    # The values of one sample are copied: their lines would share few sets of the first cache. A one after
    # them makes the bias's sum; the deltas of more samples are added up as they are transposed.
    copied = batch == 1
    summed = columns + copied
    copy = aligned((columns // lanes + 1) * lanes * terms if copied else 0, values)
    packed = aligned(terms * (vectors + PANEL - 1) // PANEL * PANEL * lanes, delta)
    sums = aligned((summed + ROWS - 1) // ROWS * ROWS * width, delta)
    sums[:] = 0
    totals = np.zeros(width, delta.dtype)
    places = places_of(vectors, terms, lanes)
    origins, offsets, shifts = (
        np.empty(summed, np.uint64),
        np.empty(terms, np.uint64),
        np.empty(terms, np.uint64),
    )
    for k in range(summed):
        origins[k] = k // lanes * terms * lanes + k % lanes if copied else k * batch
    for n in range(terms):
        offsets[n] = n * lanes if copied else n // batch * value_step + n % batch
        shifts[n] = n * PANEL * lanes
    # The first step of the walk sees the initial state.
    alone = (products.steps - 1 if reverse else 0) if shifted else -1
    shift = (1 if reverse else -1) if shifted else 0
    t = start
    while t < end:
        count = 1 if t == alone else min(at_once, (end if alone < t else min(alone, end)) - t)
        seen = initial if t == alone else values[(t + shift) * value_step :]
        if copied:
            rows_as_lanes(
                seen, np.uint64(0), np.uint64(value_step), count, columns, 1, copy, terms, 1, totals
            )
            for n in range(count):
                copy[origins[columns] + offsets[n]] = 1
            seen = copy
        place = np.uint64(t * delta_step + products.first * batch)
        rows_as_lanes(delta, place, np.uint64(delta_step), count, rows, batch, packed, terms, PANEL, totals)
        add_products(seen, origins, offsets, packed, places, shifts, 0, count * batch, sums)
        t += count
    top = np.uint64(target * columns)
    copy_transposed(sums, np.uint64(0), width, columns, rows, weights, top, columns)
    bias_sums = sums[columns * width :] if copied else totals
    for r in range(rows):
        biases[target + r] = bias_sums[r]

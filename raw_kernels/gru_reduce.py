"""The product of the transposed Jacobians of each chunk of a gated recurrent layer."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins import reduce
from bppsa_cupy.raw_kernels.twins.reduce import (
    map_count,
    multiply,
    renormalise,
    span,
    store,
    take_in,
    unit_columns,
)
from bppsa_cupy.system.compiled import compiled


@compiled()
def _one(
    gates, state, initial, weight_hh, gradient, lengths, maps, exponents, offsets, steps, hidden, batch,
    chunk, first, per_step, reverse, item,
):  # fmt: skip
    b = item % batch
    begin, end = span(item // batch + first, steps, chunk, lengths[b], reverse)
    one = state.dtype.type(1)
    columns, product = unit_columns(state, hidden), np.empty((hidden, hidden + 1), state.dtype)
    jacobian = np.empty((hidden, hidden), state.dtype)
    powers = np.zeros(hidden, np.int32)
    square = hidden * hidden
    for back in range(end - begin):
        s = end - 1 - back
        t = steps - 1 - s if reverse else s
        earlier = t + 1 if reverse else t - 1
        if per_step:
            take_in(columns, gradient, t, hidden, batch, b)
        for k in range(hidden):
            place = (4 * t * hidden + k) * batch + b
            r, z = gates[place], gates[place + hidden * batch]
            n, m = gates[place + 2 * hidden * batch], gates[place + 3 * hidden * batch]
            h = initial[k * batch + b] if s == 0 else state[(earlier * hidden + k) * batch + b]
            by_n = (one - z) * (one - n * n)
            by_r, by_z, by_m = by_n * m * r * (one - r), (h - n) * z * (one - z), by_n * r
            for i in range(hidden):
                w = k * hidden + i
                jacobian[i, k] = (
                    weight_hh[w] * by_r + weight_hh[square + w] * by_z + weight_hh[2 * square + w] * by_m
                )
            jacobian[k, k] += z
        multiply(jacobian, columns, product)
        columns, product = product, columns
        if (back + 1) % reduce.RENORMALISED == 0 or s == begin:
            renormalise(columns, powers)
    store(columns, powers, maps, exponents, offsets, item, batch, per_step)


@compiled(parallel=True)
def gru_reduce(
    gates, state, initial, weight_hh, gradient, lengths, maps, exponents, offsets, steps, hidden, batch,
    chunk, first, per_step, reverse,
):  # fmt: skip
    for item in prange(map_count(steps, batch, chunk, first)):
        _one(
            gates, state, initial, weight_hh, gradient, lengths, maps, exponents, offsets, steps, hidden,
            batch, chunk, first, per_step, reverse, item,
        )  # fmt: skip


COLUMNS = reduce.COLUMNS["gru"]

KERNEL = kernel(
    gru_reduce, reduce.reduce_launch(gates=3, parts=1, coefficients=4, columns=COLUMNS, tile_columns=8)
)

"""The product of the transposed Jacobians of each chunk of an LSTM layer, over (h, c)."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins import reduce
from bppsa_cupy.raw_kernels.twins.activations import tanh
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
    size, square, plane = 2 * hidden, hidden * hidden, hidden * batch
    columns, product = unit_columns(state, size), np.empty((size, size + 1), state.dtype)
    jacobian = np.zeros((size, size), state.dtype)
    powers = np.zeros(size, np.int32)
    for back in range(end - begin):
        s = end - 1 - back
        t = steps - 1 - s if reverse else s
        earlier = t + 1 if reverse else t - 1
        if per_step:
            take_in(columns, gradient, t, hidden, batch, b)
        for k in range(hidden):
            place = 4 * t * plane + k * batch + b
            i, f, g, o = (
                gates[place],
                gates[place + plane],
                gates[place + 2 * plane],
                gates[place + 3 * plane],
            )
            c = tanh(state[(2 * t + 1) * plane + k * batch + b])
            before = initial if s == 0 else state[2 * earlier * plane :]
            by_i, by_g, by_o = g * i * (one - i), i * (one - g * g), c * o * (one - o)
            by_f = before[plane + k * batch + b] * f * (one - f)
            through = o * (one - c * c)
            for row in range(hidden):
                w = k * hidden + row
                by_c = weight_hh[w] * by_i + weight_hh[square + w] * by_f + weight_hh[2 * square + w] * by_g
                jacobian[row, k] = weight_hh[3 * square + w] * by_o + by_c * through
                jacobian[row, hidden + k] = by_c
            jacobian[hidden + k, k] = f * through
            jacobian[hidden + k, hidden + k] = f
        multiply(jacobian, columns, product)
        columns, product = product, columns
        if (back + 1) % reduce.RENORMALISED == 0 or s == begin:
            renormalise(columns, powers)
    store(columns, powers, maps, exponents, offsets, item, batch, per_step)


@compiled(parallel=True)
def lstm_reduce(
    gates, state, initial, weight_hh, gradient, lengths, maps, exponents, offsets, steps, hidden, batch,
    chunk, first, per_step, reverse,
):  # fmt: skip
    for item in prange(map_count(steps, batch, chunk, first)):
        _one(
            gates, state, initial, weight_hh, gradient, lengths, maps, exponents, offsets, steps, hidden,
            batch, chunk, first, per_step, reverse, item,
        )  # fmt: skip


COLUMNS = reduce.COLUMNS["lstm"]

KERNEL = kernel(
    lstm_reduce, reduce.reduce_launch(gates=4, parts=2, coefficients=6, columns=COLUMNS, tile_columns=4)
)

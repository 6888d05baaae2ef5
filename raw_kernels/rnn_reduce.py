"""The product of the transposed Jacobians of each chunk of a tanh or ReLU recurrent layer."""

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
    state, weight_hh, gradient, lengths, maps, exponents, offsets, steps, hidden, batch, chunk, first,
    per_step, relu, reverse, item,
):  # fmt: skip
    b = item % batch
    begin, end = span(item // batch + first, steps, chunk, lengths[b], reverse)
    one, zero = state.dtype.type(1), state.dtype.type(0)
    columns, product = unit_columns(state, hidden), np.empty((hidden, hidden + 1), state.dtype)
    jacobian = np.empty((hidden, hidden), state.dtype)
    powers = np.zeros(hidden, np.int32)
    for back in range(end - begin):
        s = end - 1 - back
        t = steps - 1 - s if reverse else s
        if per_step:
            take_in(columns, gradient, t, hidden, batch, b)
        for k in range(hidden):
            h = state[(t * hidden + k) * batch + b]
            slope = (one if h > zero else zero) if relu else one - h * h
            for i in range(hidden):
                jacobian[i, k] = weight_hh[k * hidden + i] * slope
        multiply(jacobian, columns, product)
        columns, product = product, columns
        if (back + 1) % reduce.RENORMALISED == 0 or s == begin:
            renormalise(columns, powers)
    store(columns, powers, maps, exponents, offsets, item, batch, per_step)


@compiled(parallel=True)
def rnn_reduce(
    state, weight_hh, gradient, lengths, maps, exponents, offsets, steps, hidden, batch, chunk, first,
    per_step, relu, reverse,
):  # fmt: skip
    for item in prange(map_count(steps, batch, chunk, first)):
        _one(
            state, weight_hh, gradient, lengths, maps, exponents, offsets, steps, hidden, batch, chunk, first,
            per_step, relu, reverse, item,
        )  # fmt: skip


COLUMNS = reduce.COLUMNS["rnn"]

KERNEL = kernel(
    rnn_reduce, reduce.reduce_launch(gates=1, parts=1, coefficients=1, columns=COLUMNS, tile_columns=8)
)

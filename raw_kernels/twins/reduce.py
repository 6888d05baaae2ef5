"""Loops of the reductions of recurrent layers.

A twin forms the transposed Jacobian of a step in a scratch matrix and multiplies the columns by it.
"""

import math

import numpy as np

from bppsa_cupy.raw_kernels.twins.walks import element_of
from bppsa_cupy.system.compiled import compiled

#: Steps after which a column's power of two is taken out of it.
RENORMALISED = 8
#: The largest state for which a block holds a slice of a map in shared memory.
MAXIMAL_STATE = 448


@compiled()
def map_count(steps, walks, chunk, first):
    """Maps that a reduction makes: chunks from `first` on, times walks."""
    return ((steps + chunk - 1) // chunk - first) * walks


@compiled()
def span(number, steps, chunk, length, reverse):
    """The steps [begin, end) of chunk `number` at which a sample of `length` is not padded."""
    begin, end = number * chunk, min(number * chunk + chunk, steps)
    if reverse:
        return max(begin, steps - length), end
    return begin, min(end, length)


@compiled()
def unit_columns(like, size):
    """The identity, and a column of zeros for the chunk's own gradients; (size, size + 1)."""
    columns = np.zeros((size, size + 1), like.dtype)
    for i in range(size):
        columns[i, i] = 1
    return columns


@compiled()
def take_in(columns, gradient, place, hidden, spacing):
    """Add the gradient by a step's output, from `place` on, to the last column."""
    for k in range(hidden):
        columns[k, -1] += gradient[place + k * spacing]


@compiled()
def multiply(jacobian, columns, product):
    """product = jacobian columns."""
    for i in range(jacobian.shape[0]):
        product[i, :] = 0
        for k in range(jacobian.shape[1]):
            factor = jacobian[i, k]
            if factor != 0:
                for c in range(columns.shape[1]):
                    product[i, c] += factor * columns[k, c]


@compiled()
def renormalise(columns, exponents):
    """Take the power of two out of each column but the last."""
    most = 126 if columns.itemsize == 4 else 1022
    for c in range(exponents.size):
        largest = columns.dtype.type(0)
        for i in range(columns.shape[0]):
            largest = max(largest, abs(columns[i, c]))
        if largest > 0 and np.isfinite(largest):
            exponent = min(max(math.frexp(largest)[1], -most), most)
            factor = columns.dtype.type(math.ldexp(1.0, -exponent))
            for i in range(columns.shape[0]):
                columns[i, c] *= factor
            exponents[c] += exponent


@compiled()
def store(columns, powers, maps, exponents, item):
    """Write one map and its exponents."""
    size = powers.size
    for c in range(size):
        exponents[item * size + c] = powers[c]
        for i in range(size):
            maps[(item * size + c) * size + i] = columns[i, c]


@compiled()
def store_offsets(columns, offsets, first, walk, hidden, sets, batch):
    """Write a walk's response to a chunk's own gradients, all walks' beginning at `first`."""
    for i in range(columns.shape[0]):
        offsets[first + element_of(i, walk, hidden, sets, batch)] = columns[i, -1]

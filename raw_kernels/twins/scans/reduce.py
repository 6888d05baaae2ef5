"""Loops of the reductions of recurrent layers, on columns of maps with samples as lanes.

Of a state of S elements the lanes of row i and column c of a map lie at (c S + i) LANES.
"""

import math

import numpy as np

from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, load, magnitude, select, spread, store
from bppsa_cupy.system.compiled import compiled

#: Steps after which a column's power of two is taken out of it.
RENORMALISED = 8
#: Columns that are scaled and multiplied together: what is read twice stays in the nearest cache.
AT_ONCE = 4
#: The largest state for which a block holds a slice of a map in shared memory.
MAXIMAL_STATE = 448


@compiled()
def groups_of(batch):
    """Groups of lanes that hold so many samples."""
    return (batch + LANES - 1) // LANES


@compiled()
def identity(like, size, width):
    """The identity of every lane, and zeros in columns after it."""
    columns = np.zeros(size * width * LANES, like.dtype)
    for i in range(size):
        start = (i * size + i) * LANES
        columns[start : start + LANES] = 1
    return columns


@compiled()
def renormalise(columns, powers, size, ends, step):
    """Take the power of two out of each of the first `size` columns, in the lanes that end after `step`."""
    most, L, S = 126 if columns.itemsize == 4 else 1022, np.uint64(LANES), np.uint64(size)
    scales = np.empty(LANES, columns.dtype)
    for c in range(S):
        largest = spread(columns.dtype.type(0))
        for i in range(S):
            value = magnitude(load(columns, (c * S + i) * L))
            largest = select(largest < value, value, largest)
        store(scales, np.uint64(0), largest)
        for lane in range(LANES):
            exponent = 0
            if step < ends[lane] and scales[lane] > 0 and np.isfinite(scales[lane]):
                exponent = min(max(math.frexp(scales[lane])[1], -most), most)
            powers[np.int64(c) * LANES + lane] += exponent
            scales[lane] = math.ldexp(1.0, -exponent)
        factor = load(scales, np.uint64(0))
        for i in range(S):
            place = (c * S + i) * L
            store(columns, place, load(columns, place) * factor)


@compiled()
def store_map(columns, powers, lane, size, maps, exponents, item):
    """Write one lane's map and its exponents."""
    for c in range(size):
        exponents[item * size + c] = powers[c * LANES + lane]
        for i in range(size):
            maps[(item * size + c) * size + i] = columns[(c * size + i) * LANES + lane]


@compiled()
def store_offsets(columns, lane, size, offsets, first, batch):
    """Write a walk's response to a chunk's own gradients, from `first` on."""
    for i in range(size):
        offsets[first + i * batch] = columns[(size * size + i) * LANES + lane]

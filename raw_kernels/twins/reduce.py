"""What the reductions of recurrent layers share: launches, and their twins' loops.

A twin forms the transposed Jacobian of a step in a scratch matrix and multiplies the columns by it.
"""

import math

import numpy as np

from bppsa_cupy.raw_kernels.kernel import (
    MAXIMAL_GRID,
    LaunchShape,
    one_thread_per,
)
from bppsa_cupy.system.compiled import compiled

#: Steps after which a column's power of two is taken out of it.
RENORMALISED = 8
#: The largest `hidden` for which a thread holds columns in registers, and the largest state for which a
#: block holds a slice of a map in shared memory.
REGISTER_HIDDEN, MAXIMAL_STATE = 20, 448
#: Columns a thread holds in registers, in float32, by cell.
COLUMNS = {"rnn": 4, "gru": 4, "lstm": 2}
#: Threads of a block whose threads hold columns in registers: few, so that multiprocessors are filled evenly.
BLOCK = 64
SHARED_BYTES, TILE_ROWS, BLOCK_THREADS = 48 * 1024, 4, 256


def reduce_launch(gates, parts, coefficients, columns, tile_columns):
    """The launch of a reduction, from its cell's numbers in reduce.cuh.

    columns       a thread holds in registers, in float32
    tile_columns  of a thread's tile where a block holds columns in shared memory
    """

    def launch(s):
        hidden, per_step = s["hidden"], 1 if s["per_step"] else 0
        maps = max(0, -(-s["steps"] // s["chunk"]) - s["first"]) * s["batch"]
        size, itemsize = parts * hidden, s["itemsize"]
        if hidden <= REGISTER_HIDDEN:
            shape = one_thread_per(maps * (-(-size // columns) + per_step), BLOCK)
            return shape._replace(shared_bytes=gates * REGISTER_HIDDEN**2 * itemsize)
        rows = -(-hidden // TILE_ROWS)

        def bytes_of(tiles):
            reals = tiles * tile_columns * size + coefficients * hidden
            return reals * itemsize + tiles * tile_columns * 4

        tiles = min(-(-(size + per_step) // tile_columns), max(1, BLOCK_THREADS // rows))
        while tiles > 1 and bytes_of(tiles) > SHARED_BYTES:
            tiles -= 1
        slices = -(-(size + per_step) // (tiles * tile_columns))
        return LaunchShape((min(maps * slices, MAXIMAL_GRID), 1, 1), (rows, tiles, 1), bytes_of(tiles))

    return launch


@compiled()
def map_count(steps, batch, chunk, first):
    """Maps that a reduction makes: chunks from `first` on, times samples."""
    return ((steps + chunk - 1) // chunk - first) * batch


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
def take_in(columns, gradient, t, hidden, batch, b):
    """Add the gradient by the output of time t to the last column."""
    for k in range(hidden):
        columns[k, -1] += gradient[(t * hidden + k) * batch + b]


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
def store(columns, powers, maps, exponents, offsets, item, batch, per_step):
    """Write one map, its exponents, and the response to the chunk's own gradients."""
    size = powers.size
    number, b = item // batch, item % batch
    for c in range(size):
        exponents[item * size + c] = powers[c]
        for i in range(size):
            maps[(item * size + c) * size + i] = columns[i, c]
    if per_step:
        for i in range(size):
            offsets[(number * size + i) * batch + b] = columns[i, -1]

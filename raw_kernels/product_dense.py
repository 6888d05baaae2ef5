"""C = A B where all three store every element."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.scans.batched import GROUP, group_size, is_streamed, read, write
from bppsa_cupy.raw_kernels.twins.simd.lanes import multiply_add, spread
from bppsa_cupy.system.compiled import compiled

#: Rows and columns of C that a thread has the sums of, in registers.
TILE = 4
#: Rows of C that one library GEMM makes.
BAND_ROWS = 64


@compiled(parallel=True)
def product_dense(a, b, c, rows, inner, columns, batch, a_batched, b_batched):
    if batch == 1 or (b_batched and not a_batched):
        # Samples are columns of B: one plain product, cut by rows.
        across = columns * batch
        right = b.reshape(inner, across)
        bands = (rows + BAND_ROWS - 1) // BAND_ROWS
        for band in prange(bands):
            first, end = band * BAND_ROWS, min(rows, (band + 1) * BAND_ROWS)
            out = c[first * across : end * across].reshape(end - first, across)
            if inner == 0:
                out[...] = 0
            else:
                np.dot(a[first * inner : end * inner].reshape(end - first, inner), right, out)
    elif a_batched and not b_batched:
        left = b.reshape(inner, columns).T
        for row in prange(rows):
            out = c[row * columns * batch : (row + 1) * columns * batch].reshape(columns, batch)
            if inner == 0:
                out[...] = 0
            else:
                np.dot(left, a[row * inner * batch : (row + 1) * inner * batch].reshape(inner, batch), out)
    else:
        blocks = (rows + TILE - 1) // TILE
        for block in prange(blocks):
            end = min(rows, (block + 1) * TILE)
            _rows(a, b, c, block * TILE, end, inner, columns, batch, a_batched, b_batched)


@compiled()
def _rows(a, b, c, first, end, inner, columns, batch, a_batched, b_batched):
    """Rows `first` to `end` of C, two and then one at a time, four columns at a time."""
    width, depth, across = np.uint64(batch), np.uint64(inner), np.uint64(columns)
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    streamed = is_streamed(c, width)
    zero = c.dtype.type(0)
    for sample in range(np.uint64(0), width, GROUP):
        count = group_size(width, sample)
        row = np.uint64(first)
        while row < np.uint64(end):
            # Below the last row the pair's second one is that row again, and is not written.
            pair = row + one < np.uint64(end)
            upper, lower = row * depth, (row + one if pair else row) * depth
            entry = row * across
            column = np.uint64(0)
            while column + four <= across:
                u0, u1, u2, u3 = spread(zero), spread(zero), spread(zero), spread(zero)
                l0, l1, l2, l3 = spread(zero), spread(zero), spread(zero), spread(zero)
                for k in range(depth):
                    x = read(a, upper + k, a_batched, width, sample, count)
                    y = read(a, lower + k, a_batched, width, sample, count)
                    j = k * across + column
                    z = read(b, j, b_batched, width, sample, count)
                    u0, l0 = multiply_add(x, z, u0), multiply_add(y, z, l0)
                    z = read(b, j + one, b_batched, width, sample, count)
                    u1, l1 = multiply_add(x, z, u1), multiply_add(y, z, l1)
                    z = read(b, j + two, b_batched, width, sample, count)
                    u2, l2 = multiply_add(x, z, u2), multiply_add(y, z, l2)
                    z = read(b, j + three, b_batched, width, sample, count)
                    u3, l3 = multiply_add(x, z, u3), multiply_add(y, z, l3)
                write(c, entry + column, width, sample, count, u0, streamed)
                write(c, entry + column + one, width, sample, count, u1, streamed)
                write(c, entry + column + two, width, sample, count, u2, streamed)
                write(c, entry + column + three, width, sample, count, u3, streamed)
                if pair:
                    write(c, entry + across + column, width, sample, count, l0, streamed)
                    write(c, entry + across + column + one, width, sample, count, l1, streamed)
                    write(c, entry + across + column + two, width, sample, count, l2, streamed)
                    write(c, entry + across + column + three, width, sample, count, l3, streamed)
                column += four
            while column < across:
                u0, l0 = spread(zero), spread(zero)
                for k in range(depth):
                    z = read(b, k * across + column, b_batched, width, sample, count)
                    u0 = multiply_add(read(a, upper + k, a_batched, width, sample, count), z, u0)
                    l0 = multiply_add(read(a, lower + k, a_batched, width, sample, count), z, l0)
                write(c, entry + column, width, sample, count, u0, streamed)
                if pair:
                    write(c, entry + across + column, width, sample, count, l0, streamed)
                column += one
            row += two


KERNEL = kernel(
    product_dense, lambda s: one_thread_per(-(-s["rows"] // TILE) * -(-s["columns"] // TILE) * s["batch"])
)

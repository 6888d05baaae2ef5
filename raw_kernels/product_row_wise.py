"""C = A B row by row, the sums of a row side by side for every column."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.scans.batched import (
    GROUP,
    group_size,
    is_streamed,
    one_block_per,
    read,
    write,
)
from bppsa_cupy.raw_kernels.twins.simd.lanes import load, multiply_add, spread, store
from bppsa_cupy.system.compiled import compiled

#: Threads of a block, which has a row of C and so many samples.
BLOCK, SAMPLES = 128, 32
#: Rows a chunk has at least; each chunk takes room for one row of sums.
CHUNK_ROWS = 16


@compiled(parallel=True)
def product_row_wise(
    a_indptr, a_indices, a, b_indptr, b_indices, b, c_indptr, c_indices, c,
    rows, inner, columns, a_nnz, b_nnz, c_nnz, batch, a_batched, b_batched,
):  # fmt: skip
    width, one = np.uint64(batch), np.uint64(1)
    streamed = is_streamed(c, width)
    zero = c.dtype.type(0)
    chunks = min(64, (rows + CHUNK_ROWS - 1) // CHUNK_ROWS)
    for chunk in prange(chunks):
        sums = np.zeros(np.uint64(columns) * (one if width == one else GROUP), c.dtype)
        for row in range(np.uint64(rows * chunk // chunks), np.uint64(rows * (chunk + 1) // chunks)):
            if width == one:
                for i in range(np.uint64(a_indptr[row]), np.uint64(a_indptr[row + one])):
                    middle = np.uint64(a_indices[i])
                    for j in range(np.uint64(b_indptr[middle]), np.uint64(b_indptr[middle + one])):
                        sums[b_indices[j]] += a[i] * b[j]
                for entry in range(np.uint64(c_indptr[row]), np.uint64(c_indptr[row + one])):
                    c[entry] = sums[c_indices[entry]]
                    sums[c_indices[entry]] = zero
                continue
            for sample in range(np.uint64(0), width, GROUP):
                count = group_size(width, sample)
                for i in range(np.uint64(a_indptr[row]), np.uint64(a_indptr[row + one])):
                    factor = read(a, i, a_batched, width, sample, count)
                    middle = np.uint64(a_indices[i])
                    for j in range(np.uint64(b_indptr[middle]), np.uint64(b_indptr[middle + one])):
                        place = np.uint64(b_indices[j]) * GROUP
                        value = read(b, j, b_batched, width, sample, count)
                        store(sums, place, multiply_add(factor, value, load(sums, place)))
                for entry in range(np.uint64(c_indptr[row]), np.uint64(c_indptr[row + one])):
                    place = np.uint64(c_indices[entry]) * GROUP
                    write(c, entry, width, sample, count, load(sums, place), streamed)
                    store(sums, place, spread(zero))


KERNEL = kernel(product_row_wise, lambda s: one_block_per(s["rows"] * -(-s["batch"] // SAMPLES), BLOCK))

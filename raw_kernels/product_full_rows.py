"""C = A B where every row of B is empty or full."""

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
from bppsa_cupy.raw_kernels.twins.simd.lanes import multiply_add, spread
from bppsa_cupy.system.compiled import compiled

#: Threads of a block, which has a row of C.
BLOCK = 128


@compiled(parallel=True)
def product_full_rows(
    a_indptr, a_indices, a, b_indptr, b, c_indptr, c,
    rows, inner, a_nnz, b_nnz, c_nnz, batch, a_batched, b_batched,
):  # fmt: skip
    width, one, two, four = np.uint64(batch), np.uint64(1), np.uint64(2), np.uint64(4)
    three = two + one
    streamed = is_streamed(c, width)
    zero = c.dtype.type(0)
    for row in prange(np.uint64(rows)):
        first, last = np.uint64(a_indptr[row]), np.uint64(a_indptr[row + one])
        start, end = np.uint64(c_indptr[row]), np.uint64(c_indptr[row + one])
        for sample in range(np.uint64(0), width, GROUP):
            count = group_size(width, sample)
            entry = start
            # Four columns at a time, whose sums stay in registers.
            while entry + four <= end:
                s0, s1, s2, s3 = spread(zero), spread(zero), spread(zero), spread(zero)
                for i in range(first, last):
                    factor = read(a, i, a_batched, width, sample, count)
                    middle = np.uint64(a_indices[i])
                    j = np.uint64(b_indptr[middle]) + entry - start
                    if j < np.uint64(b_indptr[middle + one]):
                        s0 = multiply_add(factor, read(b, j, b_batched, width, sample, count), s0)
                        s1 = multiply_add(factor, read(b, j + one, b_batched, width, sample, count), s1)
                        s2 = multiply_add(factor, read(b, j + two, b_batched, width, sample, count), s2)
                        s3 = multiply_add(factor, read(b, j + three, b_batched, width, sample, count), s3)
                write(c, entry, width, sample, count, s0, streamed)
                write(c, entry + one, width, sample, count, s1, streamed)
                write(c, entry + two, width, sample, count, s2, streamed)
                write(c, entry + three, width, sample, count, s3, streamed)
                entry += four
            while entry < end:
                s0 = spread(zero)
                for i in range(first, last):
                    middle = np.uint64(a_indices[i])
                    j = np.uint64(b_indptr[middle]) + entry - start
                    if j < np.uint64(b_indptr[middle + one]):
                        factor = read(a, i, a_batched, width, sample, count)
                        s0 = multiply_add(factor, read(b, j, b_batched, width, sample, count), s0)
                write(c, entry, width, sample, count, s0, streamed)
                entry += one


KERNEL = kernel(product_full_rows, lambda s: one_block_per(s["rows"] if s["batch"] else 0, BLOCK))

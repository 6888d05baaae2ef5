"""C = A B where A is a whole diagonal: C has B's pattern."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.scans.batched import GROUP, group_size, is_streamed, read, write
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def product_scale_rows(indptr, a, b, c, rows, nnz, batch, a_batched, b_batched):
    width = np.uint64(batch)
    streamed = is_streamed(c, width)
    for row in prange(np.uint64(rows)):
        for entry in range(np.uint64(indptr[row]), np.uint64(indptr[row + np.uint64(1)])):
            for sample in range(np.uint64(0), width, GROUP):
                count = group_size(width, sample)
                factor = read(a, row, a_batched, width, sample, count)
                value = factor * read(b, entry, b_batched, width, sample, count)
                write(c, entry, width, sample, count, value, streamed)


KERNEL = kernel(product_scale_rows, lambda s: one_thread_per(s["rows"] * s["batch"]))

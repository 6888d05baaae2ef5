"""C = A B where B is a whole diagonal: C has A's pattern."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.scans.batched import GROUP, group_size, is_streamed, read, write
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def product_scale_columns(indices, a, b, c, columns, nnz, batch, a_batched, b_batched):
    width = np.uint64(batch)
    streamed = is_streamed(c, width)
    for entry in prange(np.uint64(nnz)):
        column = np.uint64(indices[entry])
        for sample in range(np.uint64(0), width, GROUP):
            count = group_size(width, sample)
            factor = read(b, column, b_batched, width, sample, count)
            value = read(a, entry, a_batched, width, sample, count) * factor
            write(c, entry, width, sample, count, value, streamed)


KERNEL = kernel(product_scale_columns, lambda s: one_thread_per(s["nnz"] * s["batch"]))

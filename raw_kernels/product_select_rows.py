"""C = A B where A is a selection: at most one entry a row, as of max-pooling without overlap."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.scans.batched import GROUP, group_size, is_streamed, read, write
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def product_select_rows(
    a_indptr, a_indices, a, b_indptr, b, c_indptr, c,
    rows, inner, a_nnz, b_nnz, c_nnz, batch, a_batched, b_batched,
):  # fmt: skip
    width, one = np.uint64(batch), np.uint64(1)
    streamed = is_streamed(c, width)
    for row in prange(np.uint64(rows)):
        chosen = np.uint64(a_indptr[row])
        if chosen < np.uint64(a_indptr[row + one]):
            source = np.uint64(b_indptr[a_indices[chosen]])
            for entry in range(np.uint64(c_indptr[row]), np.uint64(c_indptr[row + one])):
                for sample in range(np.uint64(0), width, GROUP):
                    count = group_size(width, sample)
                    factor = read(a, chosen, a_batched, width, sample, count)
                    value = factor * read(b, source, b_batched, width, sample, count)
                    write(c, entry, width, sample, count, value, streamed)
                source += one


KERNEL = kernel(product_select_rows, lambda s: one_thread_per(s["rows"] * s["batch"]))

"""C = A B where every row of B is empty or full."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.batched import multiply_add
from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.twin import twin


@twin(parallel=True)
def product_full_rows(
    a_indptr, a_indices, a, b_indptr, b, c_indptr, c,
    rows, inner, a_nnz, b_nnz, c_nnz, batch, a_batched, b_batched,
):  # fmt: skip
    width, one = np.uint64(batch), np.uint64(1)
    for row in prange(np.uint64(rows)):
        first = np.uint64(c_indptr[row])
        for place in range(first * width, np.uint64(c_indptr[row + one]) * width):
            c[place] = 0
        for i in range(np.uint64(a_indptr[row]), np.uint64(a_indptr[row + one])):
            middle = np.uint64(a_indices[i])
            start = np.uint64(b_indptr[middle])
            for j in range(start, np.uint64(b_indptr[middle + one])):
                multiply_add(c, first + j - start, a, i, a_batched, b, j, b_batched, width)


KERNEL = Kernel(
    name="product_full_rows",
    parameters=(
        array_in("a_indptr", "index", "rows + 1"),
        array_in("a_indices", "index", "a_nnz"),
        array_in("a", "real", "a_nnz * (batch if a_batched else 1)"),
        array_in("b_indptr", "index", "inner + 1"),
        array_in("b", "real", "b_nnz * (batch if b_batched else 1)"),
        array_in("c_indptr", "index", "rows + 1"),
        array_out("c", "real", "c_nnz * batch"),
        scalar("rows"),
        scalar("inner"),
        scalar("a_nnz"),
        scalar("b_nnz"),
        scalar("c_nnz"),
        scalar("batch"),
        scalar("a_batched", "flag"),
        scalar("b_batched", "flag"),
    ),
    launch=lambda s: one_thread_per(s["rows"] * s["batch"]),
    twin=product_full_rows,
)

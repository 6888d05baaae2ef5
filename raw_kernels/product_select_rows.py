"""C = A B where A is a selection: at most one entry a row, as of max-pooling without overlap."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.batched import multiply_into
from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.twin import twin


@twin(parallel=True)
def product_select_rows(
    a_indptr, a_indices, a, b_indptr, b, c_indptr, c,
    rows, inner, a_nnz, b_nnz, c_nnz, batch, a_batched, b_batched,
):  # fmt: skip
    width = np.uint64(batch)
    for row in prange(np.uint64(rows)):
        chosen = np.uint64(a_indptr[row])
        if chosen < np.uint64(a_indptr[row + np.uint64(1)]):
            source = np.uint64(b_indptr[a_indices[chosen]])
            first = np.uint64(c_indptr[row])
            for entry in range(first, np.uint64(c_indptr[row + np.uint64(1)])):
                multiply_into(c, entry, a, chosen, a_batched, b, source + entry - first, b_batched, width)


KERNEL = Kernel(
    name="product_select_rows",
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
    twin=product_select_rows,
)

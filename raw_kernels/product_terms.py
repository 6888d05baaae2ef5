"""C = A B by a term list: the pairs of entries whose products each entry of C sums."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.twins.batched import GROUP, group_size, is_streamed, read, write
from bppsa_cupy.raw_kernels.twins.lanes import multiply_add, spread
from bppsa_cupy.raw_kernels.twins.twin import twin


@twin(parallel=True)
def product_terms(
    term_ptr, a_position, b_position, a, b, c,
    c_nnz, terms, a_nnz, b_nnz, batch, a_batched, b_batched,
):  # fmt: skip
    width = np.uint64(batch)
    streamed = is_streamed(c, width)
    zero = c.dtype.type(0)
    for entry in prange(np.uint64(c_nnz)):
        first, end = np.uint64(term_ptr[entry]), np.uint64(term_ptr[entry + np.uint64(1)])
        for sample in range(np.uint64(0), width, GROUP):
            count = group_size(width, sample)
            total = spread(zero)
            for term in range(first, end):
                x = read(a, np.uint64(a_position[term]), a_batched, width, sample, count)
                y = read(b, np.uint64(b_position[term]), b_batched, width, sample, count)
                total = multiply_add(x, y, total)
            write(c, entry, width, sample, count, total, streamed)


KERNEL = Kernel(
    name="product_terms",
    parameters=(
        array_in("term_ptr", "index", "c_nnz + 1"),
        array_in("a_position", "index", "terms"),
        array_in("b_position", "index", "terms"),
        array_in("a", "real", "a_nnz * (batch if a_batched else 1)"),
        array_in("b", "real", "b_nnz * (batch if b_batched else 1)"),
        array_out("c", "real", "c_nnz * batch"),
        scalar("c_nnz"),
        scalar("terms"),
        scalar("a_nnz"),
        scalar("b_nnz"),
        scalar("batch"),
        scalar("a_batched", "flag"),
        scalar("b_batched", "flag"),
    ),
    launch=lambda s: one_thread_per(s["c_nnz"] * s["batch"]),
    twin=product_terms,
)

"""C = A B by a term list: the pairs of entries whose products each entry of C sums."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.batched import GROUP, group_size, is_streamed, read, write
from bppsa_cupy.raw_kernels.twins.lanes import multiply_add, spread
from bppsa_cupy.raw_kernels.twins.spans import spans_of
from bppsa_cupy.system.compiled import compiled

#: What a term costs beside an element of `spans.LEAST`.
TERM = 4


@compiled()
def _one_sample(start, end, term_ptr, a_position, b_position, a, b, c):
    """Entries `start` to `end` of C for one sample; each has a term, which its sum begins with."""
    one = np.uint64(1)
    term = np.uint64(term_ptr[start])
    for entry in range(start, end):
        last = np.uint64(term_ptr[entry + one])
        total = a[a_position[term]] * b[b_position[term]]
        term += one
        while term < last:
            total += a[a_position[term]] * b[b_position[term]]
            term += one
        c[entry] = total


_spans_of_one_sample = spans_of(_one_sample)


@compiled(parallel=True)
def product_terms(
    term_ptr, a_position, b_position, a, b, c,
    c_nnz, terms, a_nnz, b_nnz, batch, a_batched, b_batched,
):  # fmt: skip
    width = np.uint64(batch)
    if width == np.uint64(1):
        _spans_of_one_sample(TERM * terms, c_nnz, (term_ptr, a_position, b_position, a, b, c))
        return
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


KERNEL = kernel(product_terms, lambda s: one_thread_per(s["c_nnz"] * s["batch"]))

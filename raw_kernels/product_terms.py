"""C = A B by a term list: the pairs of entries whose products each entry of C sums."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.scans.batched import GROUP, group_size, is_streamed, read, write
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, multiply_add, spread
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled

#: What a term of one sample, and one of a group of samples, costs beside an element of `spans.LEAST`.
TERM, GROUP_TERM = 8, 32


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


@compiled()
def _groups(start, end, term_ptr, a_position, b_position, a, b, c, width, a_batched, b_batched, streamed):
    """Entries `start` to `end` of C for `width` samples."""
    zero = c.dtype.type(0)
    for entry in range(start, end):
        first, last = np.uint64(term_ptr[entry]), np.uint64(term_ptr[entry + np.uint64(1)])
        for sample in range(np.uint64(0), width, GROUP):
            count = group_size(width, sample)
            total = spread(zero)
            for term in range(first, last):
                x = read(a, np.uint64(a_position[term]), a_batched, width, sample, count)
                y = read(b, np.uint64(b_position[term]), b_batched, width, sample, count)
                total = multiply_add(x, y, total)
            write(c, entry, width, sample, count, total, streamed)


_spans_of_one_sample, _spans_of_groups = spans_of(_one_sample), spans_of(_groups)


@compiled()
def product_terms(
    term_ptr, a_position, b_position, a, b, c,
    c_nnz, terms, a_nnz, b_nnz, batch, a_batched, b_batched,
):  # fmt: skip
    if batch == 1:
        _spans_of_one_sample(TERM * terms, c_nnz, (term_ptr, a_position, b_position, a, b, c))
        return
    width = np.uint64(batch)
    groups = (batch + LANES - 1) // LANES
    _spans_of_groups(
        GROUP_TERM * terms * groups, c_nnz,
        (
            term_ptr, a_position, b_position, a, b, c, width, a_batched, b_batched,
            is_streamed(c, width),
        ),
    )  # fmt: skip


KERNEL = kernel(product_terms, lambda s: one_thread_per(s["c_nnz"] * s["batch"]))

"""Sparse matrix times vector for every sample: a step of the down-sweep or of the linear scan."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.scans.batched import GROUP, group_size, read, write
from bppsa_cupy.raw_kernels.twins.simd.lanes import multiply_add, spread
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def csr_spmv(indptr, indices, data, x, addend, y, rows, columns, nnz, batch, batched, affine):
    width, one, four = np.uint64(batch), np.uint64(1), np.uint64(4)
    zero = x.dtype.type(0)
    for row in prange(np.uint64(rows)):
        first, end = np.uint64(indptr[row]), np.uint64(indptr[row + one])
        if width == one:
            total = addend[row] if affine else zero
            for entry in range(first, end):
                total += data[entry] * x[indices[entry]]
            y[row] = total
            continue
        for sample in range(np.uint64(0), width, GROUP):
            count = group_size(width, sample)
            # Four sums, so that one multiply-add need not wait for the one before.
            s0 = read(addend, row, True, width, sample, count) if affine else spread(zero)
            s1, s2, s3 = spread(zero), spread(zero), spread(zero)
            entry = first
            while entry + four <= end:
                e1, e2, e3 = entry + one, entry + np.uint64(2), entry + np.uint64(3)
                x0 = read(x, np.uint64(indices[entry]), True, width, sample, count)
                x1 = read(x, np.uint64(indices[e1]), True, width, sample, count)
                x2 = read(x, np.uint64(indices[e2]), True, width, sample, count)
                x3 = read(x, np.uint64(indices[e3]), True, width, sample, count)
                s0 = multiply_add(read(data, entry, batched, width, sample, count), x0, s0)
                s1 = multiply_add(read(data, e1, batched, width, sample, count), x1, s1)
                s2 = multiply_add(read(data, e2, batched, width, sample, count), x2, s2)
                s3 = multiply_add(read(data, e3, batched, width, sample, count), x3, s3)
                entry += four
            while entry < end:
                x0 = read(x, np.uint64(indices[entry]), True, width, sample, count)
                s0 = multiply_add(read(data, entry, batched, width, sample, count), x0, s0)
                entry += one
            write(y, row, width, sample, count, (s0 + s1) + (s2 + s3), False)


KERNEL = kernel(csr_spmv, lambda s: one_thread_per(s["rows"] * s["batch"]))

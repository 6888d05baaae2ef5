"""Sparse matrix times vector for every sample: a step of the down-sweep or of the linear scan."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.batched import multiply_add
from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.twin import twin


@twin(parallel=True)
def csr_spmv(indptr, indices, data, x, addend, y, rows, columns, nnz, batch, batched, affine):
    width = np.uint64(batch)
    for row in prange(np.uint64(rows)):
        first = row * width
        if width == 1:
            total = addend[row] if affine else x.dtype.type(0)
            for entry in range(np.uint64(indptr[row]), np.uint64(indptr[row + np.uint64(1)])):
                total += data[entry] * x[indices[entry]]
            y[row] = total
            continue
        for s in range(width):
            y[first + s] = addend[first + s] if affine else x.dtype.type(0)
        entry = np.uint64(indptr[row])
        end = np.uint64(indptr[row + np.uint64(1)])
        if not batched:
            # Four entries at a time: a quarter of the loads and stores of y.
            while entry + np.uint64(4) <= end:
                d0, d1 = data[entry], data[entry + np.uint64(1)]
                d2, d3 = data[entry + np.uint64(2)], data[entry + np.uint64(3)]
                i0 = np.uint64(indices[entry]) * width
                i1 = np.uint64(indices[entry + np.uint64(1)]) * width
                i2 = np.uint64(indices[entry + np.uint64(2)]) * width
                i3 = np.uint64(indices[entry + np.uint64(3)]) * width
                for s in range(width):
                    y[first + s] = (
                        y[first + s] + d0 * x[i0 + s] + d1 * x[i1 + s] + d2 * x[i2 + s] + d3 * x[i3 + s]
                    )
                entry += np.uint64(4)
        while entry < end:
            multiply_add(y, row, data, entry, batched, x, np.uint64(indices[entry]), 1, width)
            entry += np.uint64(1)


KERNEL = Kernel(
    name="csr_spmv",
    parameters=(
        array_in("indptr", "index", "rows + 1"),
        array_in("indices", "index", "nnz"),
        array_in("data", "real", "nnz * (batch if batched else 1)"),
        array_in("x", "real", "columns * batch"),
        array_in("addend", "real", "rows * batch if affine else 0"),
        array_out("y", "real", "rows * batch"),
        scalar("rows"),
        scalar("columns"),
        scalar("nnz"),
        scalar("batch"),
        scalar("batched", "flag"),
        scalar("affine", "flag"),
    ),
    launch=lambda s: one_thread_per(s["rows"] * s["batch"]),
    twin=csr_spmv,
)

"""Values by index, and the gradient of rows that were read by index."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.system.compiled import compiled

# ---- gather_fill ----


@kernel(lambda s: one_thread_per(s["entries"]))
@compiled(parallel=True)
def gather_fill(source, map, values, sources, entries):
    for entry in prange(entries):
        values[entry] = source[map[entry]]


# ---- embedding_weight_gradient ----


@kernel(lambda s: one_thread_per(s["rows"] * s["width"]))
@compiled(parallel=True)
def embedding_weight_gradient(gradient, order, first, result, places, rows, width):
    for row in prange(rows):
        start = np.int64(row) * width
        result[start : start + width] = 0
        for place in range(first[row], first[row + 1]):
            taken = order[place] * width
            for k in range(width):
                result[start + k] += gradient[taken + k]

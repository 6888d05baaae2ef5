"""Products of large matrices, whose bands the threads take: BLAS multiplies each, on one thread."""

import numpy as np
from numba import prange

from bppsa_cupy.system.compiled import compiled

#: Multiply-adds of a band at least, and bands at most: of equal matrices as many on any number of threads.
BAND_WORK, MOST_BANDS = 1 << 21, 8


def band_count(rows, work):
    """Into how many bands of so many rows a product is cut."""
    return max(1, min(MOST_BANDS, work // BAND_WORK, rows // 16))


@compiled(parallel=True)
def multiply_rows(left, right, out, bands):
    """out = left @ right, by bands of rows of `left`, which is C-contiguous, as `out` is."""
    for band in prange(bands):
        first, end = left.shape[0] * band // bands, left.shape[0] * (band + 1) // bands
        np.dot(left[first:end], right, out[first:end])


@compiled(parallel=True)
def multiply_columns(turned, right, parts):
    """The parts of turned.T @ right, (bands, M, N), that are made of bands of rows of both."""
    for band in prange(parts.shape[0]):
        first = turned.shape[0] * band // parts.shape[0]
        end = turned.shape[0] * (band + 1) // parts.shape[0]
        np.dot(turned[first:end].T, right[first:end], parts[band])

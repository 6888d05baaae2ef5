"""Matrix times the states of up to 16 samples, the innermost work of recurrent twins."""

import numpy as np

from bppsa_cupy.raw_kernels.twin import twin

#: Samples that one pass over time takes: the SIMD lanes of its innermost loops.
LANES = 16


@twin()
def lane_blocks(batch):
    """How many blocks of LANES samples a batch has."""
    return (batch + LANES - 1) // LANES


@twin()
def multiply_lanes(
    matrix, first, row_stride, column_stride, rows, columns, values, place, stride, count, out, target
):
    """out[target + r * LANES + lane] = sum over k of M[r, k] values[place + k * stride + lane].

    M[r, k]  matrix[first + r * row_stride + k * column_stride], (rows, columns)
    count    lanes in use, 1 to LANES; `out` holds nothing of meaning in the others
    """
    for r in range(np.uint64(rows)):
        o = np.uint64(target) + r * np.uint64(LANES)
        for lane in range(np.uint64(LANES)):
            out[o + lane] = 0
        for k in range(np.uint64(columns)):
            w = matrix[np.uint64(first) + r * np.uint64(row_stride) + k * np.uint64(column_stride)]
            i = np.uint64(place) + k * np.uint64(stride)
            for lane in range(np.uint64(count)):
                out[o + lane] += w * values[i + lane]

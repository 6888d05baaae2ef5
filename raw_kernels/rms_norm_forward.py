"""Rows divided by the root of their mean square (Zhang and Sennrich 2019), times a weight."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.scans.batched import one_block_per
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled, part

#: Threads of a block, which share a row; the .cu text counts on it.
THREADS = 128


@part()
def _rows(start, end, input, weight, output, inverse, width, eps, scaled):
    one = input.dtype.type(1)
    for row in range(np.int64(start), np.int64(end)):
        squares = input.dtype.type(0)
        for k in range(row * width, (row + 1) * width):
            squares += input[k] * input[k]
        scale = one / np.sqrt(squares / input.dtype.type(width) + input.dtype.type(eps))
        inverse[row] = scale
        for k in range(width):
            place = row * width + k
            output[place] = input[place] * scale * (weight[k] if scaled else one)


_in_spans = spans_of(_rows)


@compiled()
def rms_norm_forward(input, weight, output, inverse, rows, width, eps, scaled):
    _in_spans(rows * width, rows, (input, weight, output, inverse, width, eps, scaled))


KERNEL = kernel(rms_norm_forward, lambda s: one_block_per(s["rows"], THREADS))

"""The gradient by rows that were divided by the root of their mean square."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.rms_norm_forward import THREADS
from bppsa_cupy.raw_kernels.twins.scans.batched import one_block_per
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled, part


@part()
def _rows(start, end, gradient, input, weight, inverse, result, width, scaled):
    one = input.dtype.type(1)
    for row in range(np.int64(start), np.int64(end)):
        total = input.dtype.type(0)
        for k in range(width):
            place = row * width + k
            total += input[place] * gradient[place] * (weight[k] if scaled else one)
        scale = inverse[row]
        shared = total / input.dtype.type(width) * scale * scale
        for k in range(width):
            place = row * width + k
            own = gradient[place] * (weight[k] if scaled else one)
            result[place] = scale * (own - input[place] * shared)


_in_spans = spans_of(_rows)


@compiled()
def rms_norm_vjp(gradient, input, weight, inverse, result, rows, width, scaled):
    _in_spans(rows * width, rows, (gradient, input, weight, inverse, result, width, scaled))


KERNEL = kernel(rms_norm_vjp, lambda s: one_block_per(s["rows"], THREADS))

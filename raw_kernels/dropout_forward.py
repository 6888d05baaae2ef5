"""Dropout: the output, and which elements were kept."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.philox import philox
from bppsa_cupy.raw_kernels.twins.spans import spans_of
from bppsa_cupy.system.compiled import compiled


@compiled()
def _span(start, end, input, output, kept, key, layer, draw, threshold, scale):
    """The groups of four elements from `start` to `end`."""
    size, zero = np.uint64(input.size), input.dtype.type(0)
    for group in range(start, end):
        numbers = philox(group, layer, draw, key)
        for k in range(np.uint64(4)):
            item = np.uint64(4) * group + k
            if item < size:
                keep = numbers[k] >= threshold
                kept[item] = keep
                output[item] = scale * input[item] if keep else zero


_in_spans = spans_of(_span)


@compiled()
def dropout_forward(input, output, kept, size, key, layer, draw, threshold, scale):
    groups, limit = (size + 3) // 4, np.uint64(threshold)
    _in_spans(size, groups, (input, output, kept, key, layer, draw, limit, scale))


KERNEL = kernel(dropout_forward, "(size + 3) // 4")

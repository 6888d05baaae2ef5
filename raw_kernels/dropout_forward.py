"""Dropout: the output, and which elements were kept."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.operators.philox import philox
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled


@compiled()
def _span(start, end, input, output, kept, first, key, layer, draw, threshold, scale):
    """The groups of four elements from `start` to `end`."""
    size, zero, before = np.uint64(input.size), input.dtype.type(0), np.uint64(first % 4)
    for group in range(start, end):
        numbers = philox(np.uint64(first // 4) + group, layer, draw, key)
        for k in range(np.uint64(4)):
            item = np.uint64(4) * group + k - before  # wraps round before the first element
            if item < size:
                keep = numbers[k] >= threshold
                kept[item] = keep
                output[item] = scale * input[item] if keep else zero


_in_spans = spans_of(_span)


@compiled()
def dropout_forward(input, output, kept, draw, size, first, key, layer, threshold, scale):
    groups, limit = (first % 4 + size + 3) // 4, np.uint64(threshold)
    _in_spans(size, groups, (input, output, kept, first, key, layer, np.uint64(draw[0]), limit, scale))


KERNEL = kernel(dropout_forward, lambda s: one_thread_per((s["first"] % 4 + s["size"] + 3) // 4))

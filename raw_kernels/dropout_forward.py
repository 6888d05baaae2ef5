"""Dropout: the output, and which elements were kept."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.philox import philox
from bppsa_cupy.raw_kernels.twins.spans import part_count, part_start
from bppsa_cupy.system.compiled import compiled


@compiled()
def _part(input, output, kept, key, layer, draw, threshold, scale, start, end):
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


@compiled(parallel=True)
def dropout_forward(input, output, kept, size, key, layer, draw, threshold, scale):
    groups, limit = (size + 3) // 4, np.uint64(threshold)
    parts = part_count(size)
    if parts == 1:
        start, end = part_start(0, 1, groups), part_start(1, 1, groups)
        _part(input, output, kept, key, layer, draw, limit, scale, start, end)
    else:
        for part in prange(parts):
            start, end = part_start(part, parts, groups), part_start(part + 1, parts, groups)
            _part(input, output, kept, key, layer, draw, limit, scale, start, end)


KERNEL = kernel(dropout_forward, "(size + 3) // 4")

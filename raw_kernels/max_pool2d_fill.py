"""Values of max-pooling's transposed Jacobian."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.spans import LANES, part_count, part_start, tile_width
from bppsa_cupy.system.compiled import compiled


@compiled()
def _part(indices, window, candidate, values, windows, batch, start, end):
    width, samples, stride = tile_width(batch), np.uint64(batch), np.uint64(windows)
    for left in range(start, end, width):
        right = min(left + width, end)
        for top in range(np.uint64(0), samples, np.uint64(LANES)):
            for sample in range(top, min(top + np.uint64(LANES), samples)):
                for entry in range(left, right):
                    maximum = indices[sample * stride + np.uint64(window[entry])]
                    hit = maximum == np.int32(candidate[entry])
                    values[entry * samples + sample] = 1 if hit else 0


@compiled(parallel=True)
def max_pool2d_fill(indices, window, candidate, values, windows, entries, batch):
    parts = part_count(entries * batch)
    if parts == 1:
        start, end = part_start(0, 1, entries), part_start(1, 1, entries)
        _part(indices, window, candidate, values, windows, batch, start, end)
    else:
        for part in prange(parts):
            start, end = part_start(part, parts, entries), part_start(part + 1, parts, entries)
            _part(indices, window, candidate, values, windows, batch, start, end)


KERNEL = kernel(max_pool2d_fill, "entries * batch")

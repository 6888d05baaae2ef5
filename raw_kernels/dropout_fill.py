"""Values of dropout's transposed Jacobian."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.spans import LANES, part_count, part_start, tile_width
from bppsa_cupy.system.compiled import compiled


@compiled()
def _part(kept, values, features, batch, scale, start, end):
    width, samples, stride = tile_width(batch), np.uint64(batch), np.uint64(features)
    zero = values.dtype.type(0)
    for left in range(start, end, width):
        right = min(left + width, end)
        for top in range(np.uint64(0), samples, np.uint64(LANES)):
            for sample in range(top, min(top + np.uint64(LANES), samples)):
                for feature in range(left, right):
                    value = scale if kept[sample * stride + feature] else zero
                    values[feature * samples + sample] = value


@compiled(parallel=True)
def dropout_fill(kept, values, features, batch, scale):
    parts = part_count(features * batch)
    if parts == 1:
        start, end = part_start(0, 1, features), part_start(1, 1, features)
        _part(kept, values, features, batch, scale, start, end)
    else:
        for part in prange(parts):
            start, end = part_start(part, parts, features), part_start(part + 1, parts, features)
            _part(kept, values, features, batch, scale, start, end)


KERNEL = kernel(dropout_fill, "features * batch")

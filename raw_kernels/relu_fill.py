"""Values of ReLU's transposed Jacobian (paper, algorithm 7)."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.spans import LANES, part_count, part_start, tile_width
from bppsa_cupy.system.compiled import compiled


@compiled()
def _part(output, values, features, batch, start, end):
    width, samples, stride = tile_width(batch), np.uint64(batch), np.uint64(features)
    for left in range(start, end, width):
        right = min(left + width, end)
        for top in range(np.uint64(0), samples, np.uint64(LANES)):
            for sample in range(top, min(top + np.uint64(LANES), samples)):
                for feature in range(left, right):
                    y = output[sample * stride + feature]
                    values[feature * samples + sample] = 0 if y <= 0 else 1


@compiled(parallel=True)
def relu_fill(output, values, features, batch):
    parts = part_count(features * batch)
    if parts == 1:
        _part(output, values, features, batch, part_start(0, 1, features), part_start(1, 1, features))
    else:
        for part in prange(parts):
            start, end = part_start(part, parts, features), part_start(part + 1, parts, features)
            _part(output, values, features, batch, start, end)


KERNEL = kernel(relu_fill, "features * batch")

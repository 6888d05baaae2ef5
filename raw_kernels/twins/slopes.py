"""Values of the transposed Jacobians of tanh and the logistic function, from their outputs."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.twins.spans import LANES, part_count, part_start, tile_width
from bppsa_cupy.system.compiled import compiled


@compiled()
def _part(output, unit, values, features, batch, start, end):
    one = output.dtype.type(1)
    width, samples, stride = tile_width(batch), np.uint64(batch), np.uint64(features)
    for left in range(start, end, width):
        right = min(left + width, end)
        for top in range(np.uint64(0), samples, np.uint64(LANES)):
            for sample in range(top, min(top + np.uint64(LANES), samples)):
                for feature in range(left, right):
                    y = output[sample * stride + feature]
                    values[feature * samples + sample] = (one - y) * (unit + y)


@compiled(parallel=True)
def fill_slopes(output, unit, values, features, batch):
    """values (features, batch) = (1 - y)(unit + y) for y of output (batch, features); `unit`, of their dtype,
    is 1 for tanh and 0 for the logistic function."""
    parts = part_count(features * batch)
    if parts == 1:
        _part(output, unit, values, features, batch, part_start(0, 1, features), part_start(1, 1, features))
    else:
        for part in prange(parts):
            start, end = part_start(part, parts, features), part_start(part + 1, parts, features)
            _part(output, unit, values, features, batch, start, end)

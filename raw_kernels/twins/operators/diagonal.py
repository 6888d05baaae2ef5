"""Values of transposed Jacobians that are whole diagonals: a frame that takes the element's function."""

import numpy as np

from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of, tile_width
from bppsa_cupy.system.compiled import part


def diagonal_filling(slope):
    """fill(source, values, features, batch, scale): values (features, batch) = slope(s, scale), s being the
    elements of source (batch, features). Compiled into the twin that calls it, and cached with that.

    slope  compiled with inline="always", so that the loop is as fast as one that spells it
    """

    @part()
    def fill_tiles(start, end, source, values, features, batch, scale):
        width, samples, stride = tile_width(batch), np.uint64(batch), np.uint64(features)
        for left in range(start, end, width):
            right = min(left + width, end)
            for top in range(np.uint64(0), samples, np.uint64(LANES)):
                for sample in range(top, min(top + np.uint64(LANES), samples)):
                    for feature in range(left, right):
                        values[feature * samples + sample] = slope(source[sample * stride + feature], scale)

    run = spans_of(fill_tiles)

    @part()
    def fill(source, values, features, batch, scale):
        run(features * batch, features, (source, values, features, batch, scale))

    return fill

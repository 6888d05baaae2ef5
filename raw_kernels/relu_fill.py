"""Values of ReLU's transposed Jacobian (paper, algorithm 7)."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.twins.spans import LANES, part_count, part_start, tile_width
from bppsa_cupy.raw_kernels.twins.twin import twin


@twin()
def _part(output, values, features, batch, start, end):
    width, samples, stride = tile_width(batch), np.uint64(batch), np.uint64(features)
    for left in range(start, end, width):
        right = min(left + width, end)
        for top in range(np.uint64(0), samples, np.uint64(LANES)):
            for sample in range(top, min(top + np.uint64(LANES), samples)):
                for feature in range(left, right):
                    y = output[sample * stride + feature]
                    values[feature * samples + sample] = 0 if y <= 0 else 1


@twin(parallel=True)
def relu_fill(output, values, features, batch):
    parts = part_count(features * batch)
    if parts == 1:
        _part(output, values, features, batch, part_start(0, 1, features), part_start(1, 1, features))
    else:
        for part in prange(parts):
            start, end = part_start(part, parts, features), part_start(part + 1, parts, features)
            _part(output, values, features, batch, start, end)


KERNEL = Kernel(
    name="relu_fill",
    parameters=(
        array_in("output", "real", "batch * features"),
        array_out("values", "real", "features * batch"),
        scalar("features"),
        scalar("batch"),
    ),
    launch=lambda s: one_thread_per(s["features"] * s["batch"]),
    twin=relu_fill,
)

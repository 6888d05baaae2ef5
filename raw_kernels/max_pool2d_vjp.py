"""Two-dimensional max-pooling: the gradient by the input."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def max_pool2d_vjp(
    gradient, indices, input_gradient, planes, in_height, in_width, out_height, out_width, kernel_height,
    kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
):  # fmt: skip
    in_plane, out_plane = np.uint64(in_height * in_width), np.uint64(out_height * out_width)
    for plane in prange(planes):
        target, source = np.uint64(plane) * in_plane, np.uint64(plane) * out_plane
        for k in range(in_plane):
            input_gradient[target + k] = 0
        for k in range(out_plane):
            position = indices[source + k]
            if position >= 0:
                input_gradient[target + np.uint64(position)] += gradient[source + k]


KERNEL = kernel(max_pool2d_vjp, "planes * in_height * in_width")

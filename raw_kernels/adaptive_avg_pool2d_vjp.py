"""Two-dimensional adaptive average pooling: the gradient by the input."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.adaptive_avg_pool2d_forward import window
from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def adaptive_avg_pool2d_vjp(gradient, input_gradient, planes, in_height, in_width, out_height, out_width):
    for plane in prange(planes):
        base = np.uint64(plane) * np.uint64(in_height * in_width)
        for k in range(np.uint64(in_height * in_width)):
            input_gradient[base + k] = 0
        # Windows in their order, so that every input adds them in it.
        for row in range(out_height):
            top, bottom = window(row, in_height, out_height)
            for column in range(out_width):
                left, right = window(column, in_width, out_width)
                source = (np.int64(plane) * out_height + row) * out_width + column
                share = gradient[source] / gradient.dtype.type((bottom - top) * (right - left))
                for y in range(top, bottom):
                    start = base + np.uint64(y * in_width + left)
                    for k in range(np.uint64(right - left)):
                        input_gradient[start + k] += share


KERNEL = kernel(
    adaptive_avg_pool2d_vjp, lambda s: one_thread_per(s["planes"] * s["in_height"] * s["in_width"])
)

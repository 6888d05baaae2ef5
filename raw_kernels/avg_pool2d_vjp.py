"""Two-dimensional average pooling: the gradient by the input."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.avg_pool2d_forward import window_extent
from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.convolution.unfold import inside
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def avg_pool2d_vjp(
    gradient, input_gradient, planes, in_height, in_width, out_height, out_width, kernel_height, kernel_width,
    stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x, count_include_pad, divisor_override,
):  # fmt: skip
    for plane in prange(planes):
        base = np.uint64(plane) * np.uint64(in_height * in_width)
        for k in range(np.uint64(in_height * in_width)):
            input_gradient[base + k] = 0
        shares = np.empty(out_width, gradient.dtype)
        for row in range(out_height):
            source = np.uint64((np.int64(plane) * out_height + row) * out_width)
            down = window_extent(row, stride_y, padding_y, kernel_height, in_height, count_include_pad)
            for column in range(out_width):
                across = window_extent(column, stride_x, padding_x, kernel_width, in_width, count_include_pad)
                divisor = divisor_override if divisor_override else down * across
                shares[column] = gradient[source + np.uint64(column)] / gradient.dtype.type(divisor)
            for i in range(kernel_height):
                y = row * stride_y + i * dilation_y - padding_y
                if y < 0 or y >= in_height:
                    continue
                # Right taps first, so that every input adds its windows in the order of the outputs.
                for j in range(kernel_width - 1, -1, -1):
                    offset = j * dilation_x - padding_x
                    first, end = inside(in_width, out_width, offset, stride_x)
                    target = base + np.uint64(y * in_width + first * stride_x + offset)
                    lane, step = np.uint64(first), np.uint64(stride_x)
                    for k in range(np.uint64(end - first)):
                        input_gradient[target + k * step] += shares[lane + k]


KERNEL = kernel(avg_pool2d_vjp, lambda s: one_thread_per(s["planes"] * s["in_height"] * s["in_width"]))

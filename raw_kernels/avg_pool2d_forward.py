"""Two-dimensional average pooling: the output."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.convolution.unfold import inside
from bppsa_cupy.system.compiled import compiled


@compiled()
def window_extent(output, stride, padding, kernel, inputs, include_padding):
    """Positions along one axis that a window's divisor counts."""
    start = output * stride - padding
    end = min(start + kernel, inputs + padding)
    return end - start if include_padding else min(end, inputs) - max(start, 0)


@compiled(parallel=True)
def avg_pool2d_forward(
    input, output, planes, in_height, in_width, out_height, out_width, kernel_height, kernel_width, stride_y,
    stride_x, padding_y, padding_x, dilation_y, dilation_x, count_include_pad, divisor_override,
):  # fmt: skip
    for plane in prange(planes):
        for row in range(out_height):
            target = np.uint64((np.int64(plane) * out_height + row) * out_width)
            for k in range(np.uint64(out_width)):
                output[target + k] = 0
            for i in range(kernel_height):
                y = row * stride_y + i * dilation_y - padding_y
                if y < 0 or y >= in_height:
                    continue
                for j in range(kernel_width):
                    offset = j * dilation_x - padding_x
                    first, end = inside(in_width, out_width, offset, stride_x)
                    position = y * in_width + first * stride_x + offset
                    source = np.uint64(np.int64(plane) * in_height * in_width + position)
                    lane, step = target + np.uint64(first), np.uint64(stride_x)
                    for k in range(np.uint64(end - first)):
                        output[lane + k] += input[source + k * step]
            down = window_extent(row, stride_y, padding_y, kernel_height, in_height, count_include_pad)
            for column in range(out_width):
                across = window_extent(column, stride_x, padding_x, kernel_width, in_width, count_include_pad)
                divisor = divisor_override if divisor_override else down * across
                output[target + np.uint64(column)] /= output.dtype.type(divisor)


KERNEL = kernel(avg_pool2d_forward, lambda s: one_thread_per(s["planes"] * s["out_height"] * s["out_width"]))

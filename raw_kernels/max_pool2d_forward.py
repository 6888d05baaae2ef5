"""Two-dimensional max-pooling: the output, and where each maximum was."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.unfold import inside
from bppsa_cupy.system.compiled import compiled


@compiled(inline="always")
def _compare(input, output, indices, source, target, length, position, step):
    # Unconditional stores: the loop runs in SIMD lanes, where branches would be mispredicted.
    for k in range(length):
        value, best, kept = input[source + k * step], output[target + k], indices[target + k]
        wins = (value > best) | (value != value) | (kept < 0)
        output[target + k] = value if wins else best
        indices[target + k] = position + np.int32(k * step) if wins else kept


@compiled(parallel=True)
def max_pool2d_forward(
    input, output, indices, planes, in_height, in_width, out_height, out_width, kernel_height, kernel_width,
    stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
):  # fmt: skip
    # Output rows are the inner loop: each tap is compared for a whole row at once.
    for plane in prange(planes):
        for row in range(out_height):
            target = np.uint64((np.int64(plane) * out_height + row) * out_width)
            for k in range(np.uint64(out_width)):
                output[target + k] = -np.inf
                indices[target + k] = -1
            for i in range(kernel_height):
                y = row * stride_y + i * dilation_y - padding_y
                if y < 0 or y >= in_height:
                    continue
                for j in range(kernel_width):
                    offset = j * dilation_x - padding_x
                    first, end = inside(in_width, out_width, offset, stride_x)
                    position = np.int32(y * in_width + first * stride_x + offset)
                    source = np.uint64(np.int64(plane) * in_height * in_width + position)
                    lane, length = target + np.uint64(first), np.uint64(end - first)
                    # Constant strides become shuffles; only other ones need gathers.
                    if stride_x == 1:
                        _compare(input, output, indices, source, lane, length, position, np.uint64(1))
                    elif stride_x == 2:
                        _compare(input, output, indices, source, lane, length, position, np.uint64(2))
                    else:
                        _compare(input, output, indices, source, lane, length, position, np.uint64(stride_x))


KERNEL = kernel(max_pool2d_forward, "planes * out_height * out_width")

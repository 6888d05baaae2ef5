"""Two-dimensional max-pooling: the output, and where each maximum was."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per
from bppsa_cupy.raw_kernels.pool2d_geometry import INPUT, OUTPUT, SIZES
from bppsa_cupy.raw_kernels.twin import twin
from bppsa_cupy.raw_kernels.unfold import inside


@twin(parallel=True)
def max_pool2d_forward(
    input, output, indices, planes, in_height, in_width, out_height, out_width, kernel_height, kernel_width,
    stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
):  # fmt: skip
    # Output rows are the inner loop: each tap is compared for a whole row at once, in SIMD lanes.
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
                    lane, step = target + np.uint64(first), np.uint64(stride_x)
                    for k in range(np.uint64(end - first)):
                        value = input[source + k * step]
                        if value > output[lane + k] or value != value or indices[lane + k] < 0:
                            output[lane + k] = value
                            indices[lane + k] = position + np.int32(k * step)


KERNEL = Kernel(
    name="max_pool2d_forward",
    parameters=(
        array_in("input", "real", INPUT),
        array_out("output", "real", OUTPUT),
        array_out("indices", "int32", OUTPUT),
        *SIZES,
    ),
    launch=lambda s: one_thread_per(s["planes"] * s["out_height"] * s["out_width"]),
    twin=max_pool2d_forward,
)

"""Two-dimensional adaptive average pooling: the output."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.system.compiled import compiled


@compiled()
def window(output, inputs, outputs):
    """Where window `output` of `outputs` begins and ends on an axis of `inputs` positions."""
    return output * inputs // outputs, ((output + 1) * inputs + outputs - 1) // outputs


@compiled(parallel=True)
def adaptive_avg_pool2d_forward(input, output, planes, in_height, in_width, out_height, out_width):
    for plane in prange(planes):
        base = np.uint64(plane) * np.uint64(in_height * in_width)
        for row in range(out_height):
            top, bottom = window(row, in_height, out_height)
            for column in range(out_width):
                left, right = window(column, in_width, out_width)
                total = output.dtype.type(0)
                for y in range(top, bottom):
                    start = base + np.uint64(y * in_width + left)
                    for k in range(np.uint64(right - left)):
                        total += input[start + k]
                target = (np.int64(plane) * out_height + row) * out_width + column
                output[target] = total / output.dtype.type((bottom - top) * (right - left))


KERNEL = kernel(
    adaptive_avg_pool2d_forward, lambda s: one_thread_per(s["planes"] * s["out_height"] * s["out_width"])
)

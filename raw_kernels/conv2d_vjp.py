"""Two-dimensional convolution: the gradient by the input."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.conv2d_geometry import INPUT, OUTPUT, SIZES, WEIGHT
from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per
from bppsa_cupy.raw_kernels.twin import twin
from bppsa_cupy.raw_kernels.unfold import fold, gather_rows, rows_per_tile


@twin(parallel=True)
def conv2d_vjp(
    gradient, weight, input_gradient, batch, in_channels, in_height, in_width, out_channels, out_height,
    out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
    groups,
):  # fmt: skip
    # Whole samples a worker, so that no two add to one input; inside, a tile of output rows at a time.
    channels, features = in_channels // groups, out_channels // groups
    depth = channels * kernel_height * kernel_width
    sample_size = in_channels * in_height * in_width
    tile = rows_per_tile(depth, out_width, batch * out_height, gradient.itemsize)
    workers = min(batch, 16)
    for worker in prange(workers):
        patches = np.empty(depth * tile * out_width, gradient.dtype)
        rows = np.empty(features * tile * out_width, gradient.dtype)
        first_sample, end_sample = batch * worker // workers, batch * (worker + 1) // workers
        for i in range(np.uint64(first_sample * sample_size), np.uint64(end_sample * sample_size)):
            input_gradient[i] = 0
        for first_row in range(first_sample * out_height, end_sample * out_height, tile):
            count = min(tile, end_sample * out_height - first_row)
            width = count * out_width
            for group in range(groups):
                gather_rows(
                    gradient, rows, first_row, count, group * features, features, out_channels, out_height,
                    out_width,
                )  # fmt: skip
                matrix = weight[group * features * depth : (group + 1) * features * depth]
                np.dot(
                    matrix.reshape(features, depth).T,
                    rows[: features * width].reshape(features, width),
                    patches[: depth * width].reshape(depth, width),
                )
                fold(
                    patches, input_gradient, first_row, count, group * channels, channels, in_channels,
                    in_height, in_width, out_height, out_width, kernel_height, kernel_width, stride_y,
                    stride_x, padding_y, padding_x, dilation_y, dilation_x,
                )  # fmt: skip


KERNEL = Kernel(
    name="conv2d_vjp",
    parameters=(
        array_in("gradient", "real", OUTPUT),
        array_in("weight", "real", WEIGHT),
        array_out("input_gradient", "real", INPUT),
        *SIZES,
    ),
    launch=lambda s: one_thread_per(s["batch"] * s["in_channels"] * s["in_height"] * s["in_width"]),
    twin=conv2d_vjp,
)

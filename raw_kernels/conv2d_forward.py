"""Two-dimensional convolution: the output."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.conv2d_geometry import BIAS, INPUT, OUTPUT, SIZES, WEIGHT
from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.twin import twin
from bppsa_cupy.raw_kernels.unfold import rows_per_tile, unfold


@twin(parallel=True)
def conv2d_forward(
    input, weight, bias, output, batch, in_channels, in_height, in_width, out_channels, out_height,
    out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
    groups, biased,
):  # fmt: skip
    # A tile of output rows at a time: its patches, one GEMM a group, then the bias on the way out.
    channels, features = in_channels // groups, out_channels // groups
    depth, plane = channels * kernel_height * kernel_width, out_height * out_width
    rows = batch * out_height
    tile = rows_per_tile(depth, out_width, rows, input.itemsize)
    tiles = (rows + tile - 1) // tile
    workers = min(tiles, 16)
    for worker in prange(workers):
        patches = np.empty(depth * tile * out_width, input.dtype)
        result = np.empty(features * tile * out_width, input.dtype)
        for t in range(tiles * worker // workers, tiles * (worker + 1) // workers):
            first_row = t * tile
            count = min(tile, rows - first_row)
            width = count * out_width
            for group in range(groups):
                unfold(
                    input, patches, first_row, count, group * channels, channels, in_channels, in_height,
                    in_width, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x,
                    padding_y, padding_x, dilation_y, dilation_x,
                )  # fmt: skip
                product = result[: features * width].reshape(features, width)
                np.dot(
                    weight[group * features * depth : (group + 1) * features * depth].reshape(
                        features, depth
                    ),
                    patches[: depth * width].reshape(depth, width),
                    product,
                )
                for feature in range(features):
                    channel = group * features + feature
                    shift = bias[channel] if biased else output.dtype.type(0)
                    for r in range(count):
                        sample = (first_row + r) // out_height
                        y = first_row + r - sample * out_height
                        target = np.uint64((sample * out_channels + channel) * plane + y * out_width)
                        source = np.uint64(feature * width + r * out_width)
                        for x in range(np.uint64(out_width)):
                            output[target + x] = result[source + x] + shift


KERNEL = Kernel(
    name="conv2d_forward",
    parameters=(
        array_in("input", "real", INPUT),
        array_in("weight", "real", WEIGHT),
        array_in("bias", "real", BIAS),
        array_out("output", "real", OUTPUT),
        *SIZES,
        scalar("biased"),
    ),
    launch=lambda s: one_thread_per(s["batch"] * s["out_channels"] * s["out_height"] * s["out_width"]),
    twin=conv2d_forward,
)

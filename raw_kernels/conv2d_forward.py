"""Two-dimensional convolution: the output."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.convolution.indirect import choose_way, convolve
from bppsa_cupy.raw_kernels.twins.convolution.winograd import is_quicker, winograd
from bppsa_cupy.raw_kernels.twins.products.tiles import lanes_of
from bppsa_cupy.system.compiled import compiled


@compiled()
def _by_products(
    input, weight, bias, output, batch, in_channels, in_height, in_width, out_channels, out_height,
    out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
    groups, biased,
):  # fmt: skip
    features, depth = out_channels // groups, in_channels // groups * kernel_height * kernel_width
    steps = np.empty(depth, np.uint64)
    for k in range(depth):
        steps[k] = k
    convolve(
        input, weight, steps, depth, features * depth,
        bias if biased else bias[:0], output, batch, in_channels, in_height, in_width, out_channels,
        out_height, out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x,
        dilation_y, dilation_x, groups,
        choose_way(batch, features, out_width, stride_x, lanes_of(input.itemsize)),
    )  # fmt: skip


def conv2d_forward(
    input, weight, bias, output, batch, in_channels, in_height, in_width, out_channels, out_height,
    out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
    groups, biased,
):  # fmt: skip
    if is_quicker(
        in_channels // groups, out_channels // groups, (out_height, out_width),
        (kernel_height, kernel_width), (stride_y, stride_x), (dilation_y, dilation_x), (padding_y, padding_x),
    ):  # fmt: skip
        winograd(
            input, weight, bias if biased else bias[:0], output, batch, in_channels, in_height, in_width,
            out_channels, out_height, out_width, padding_y, padding_x, groups, False,
        )  # fmt: skip
    else:
        _by_products(
            input, weight, bias, output, batch, in_channels, in_height, in_width, out_channels, out_height,
            out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y,
            dilation_x, groups, biased,
        )  # fmt: skip


KERNEL = kernel(
    conv2d_forward,
    lambda s: one_thread_per(s["batch"] * s["out_channels"] * s["out_height"] * s["out_width"]),
)

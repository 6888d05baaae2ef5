"""Two-dimensional convolution: the output."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.convolution.indirect import convolve
from bppsa_cupy.raw_kernels.twins.convolution.window import Window
from bppsa_cupy.raw_kernels.twins.convolution.winograd import is_quicker, winograd
from bppsa_cupy.system.compiled import compiled


@compiled()
def _by_products(input, weight, bias, output, batch, in_channels, out_channels, groups, sizes):
    window = Window(*sizes)
    depth = in_channels // groups * window.kernel_height * window.kernel_width
    steps = np.empty(depth, np.uint64)
    for k in range(depth):
        steps[k] = k
    convolve(input, weight, steps, depth, bias, output, batch, in_channels, out_channels, groups, window)


def conv2d_forward(
    input, weight, bias, output, batch, in_channels, in_height, in_width, out_channels, out_height,
    out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
    groups, biased,
):  # fmt: skip
    bias = bias if biased else bias[:0]
    sizes = (
        in_height, in_width, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x,
        padding_y, padding_x, dilation_y, dilation_x,
    )  # fmt: skip
    if is_quicker(
        in_channels // groups, out_channels // groups, (out_height, out_width),
        (kernel_height, kernel_width), (stride_y, stride_x), (dilation_y, dilation_x), (padding_y, padding_x),
    ):  # fmt: skip
        winograd(input, weight, bias, output, batch, in_channels, out_channels, groups, sizes, False)
    else:
        _by_products(input, weight, bias, output, batch, in_channels, out_channels, groups, sizes)


KERNEL = kernel(
    conv2d_forward,
    lambda s: one_thread_per(s["batch"] * s["out_channels"] * s["out_height"] * s["out_width"]),
)

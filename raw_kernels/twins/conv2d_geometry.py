"""The sizes every convolution kernel takes, in this order, after its arrays."""

from bppsa_cupy.raw_kernels.kernel import Parameter, scalar

SIZES: tuple[Parameter, ...] = tuple(
    scalar(name)
    for name in (
        "batch", "in_channels", "in_height", "in_width", "out_channels", "out_height", "out_width",
        "kernel_height", "kernel_width", "stride_y", "stride_x", "padding_y", "padding_x",
        "dilation_y", "dilation_x", "groups",
    )
)  # fmt: skip

INPUT = "batch * in_channels * in_height * in_width"
WEIGHT = "out_channels * (in_channels // groups) * kernel_height * kernel_width"
OUTPUT = "batch * out_channels * out_height * out_width"
BIAS = "out_channels * biased"

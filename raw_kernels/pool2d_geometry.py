"""The sizes every pooling kernel takes, in this order, after its arrays."""

from bppsa_cupy.raw_kernels.kernel import Parameter, scalar

SIZES: tuple[Parameter, ...] = tuple(
    scalar(name)
    for name in (
        "planes", "in_height", "in_width", "out_height", "out_width", "kernel_height", "kernel_width",
        "stride_y", "stride_x", "padding_y", "padding_x", "dilation_y", "dilation_x",
    )
)  # fmt: skip

INPUT = "planes * in_height * in_width"
OUTPUT = "planes * out_height * out_width"

"""Two-dimensional convolution: its patches as a matrix."""

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.convolution.unfold import unfold
from bppsa_cupy.raw_kernels.twins.convolution.window import Window
from bppsa_cupy.system.compiled import compiled


@compiled()
def conv2d_unfold(
    input, patches, batch, in_channels, in_height, in_width, out_height, out_width, kernel_height,
    kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
):  # fmt: skip
    window = Window(
        in_height, in_width, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x,
        padding_y, padding_x, dilation_y, dilation_x,
    )  # fmt: skip
    unfold(input, patches, 0, batch * out_height, 0, in_channels, in_channels, window)


KERNEL = kernel(
    conv2d_unfold,
    lambda s: one_thread_per(s["in_channels"] * s["batch"] * s["out_height"] * s["out_width"]),
)

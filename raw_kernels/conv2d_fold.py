"""Two-dimensional convolution: the gradient by the input from the one by its patches."""

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.convolution.unfold import fold
from bppsa_cupy.raw_kernels.twins.convolution.window import Window
from bppsa_cupy.system.compiled import compiled


@compiled()
def conv2d_fold(
    patches, input_gradient, batch, in_channels, in_height, in_width, out_height, out_width, kernel_height,
    kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
):  # fmt: skip
    input_gradient[:] = 0
    window = Window(
        in_height, in_width, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x,
        padding_y, padding_x, dilation_y, dilation_x,
    )  # fmt: skip
    fold(patches, input_gradient, 0, batch * out_height, 0, in_channels, in_channels, window)


KERNEL = kernel(
    conv2d_fold, lambda s: one_thread_per(s["batch"] * s["in_channels"] * s["in_height"] * s["in_width"])
)

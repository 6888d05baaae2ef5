"""The sizes of a sliding window, which the loops of a convolution or a pooling pass on."""

from typing import NamedTuple


class Window(NamedTuple):
    """A window that slides over planes (in_height, in_width) and makes planes (out_height, out_width): output
    o and tap k of an axis see input o * stride + k * dilation - padding (`geometry.Axis`).

    A function that Python calls takes these sizes as a plain tuple, whose types Numba reads in a quarter of
    the time, and makes a window of them.
    """

    in_height: int
    in_width: int
    out_height: int
    out_width: int
    kernel_height: int
    kernel_width: int
    stride_y: int
    stride_x: int
    padding_y: int
    padding_x: int
    dilation_y: int
    dilation_x: int

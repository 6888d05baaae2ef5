"""Layers that take one number from each window of images: MaxPool2d and AvgPool2d."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from bppsa_cupy.arguments import as_flag, as_pair
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.geometry import Pair, Pool2dGeometry
from bppsa_cupy.jacobians.avg_pool2d import AvgPool2dJacobian
from bppsa_cupy.jacobians.max_pool2d import MaxPool2dJacobian
from bppsa_cupy.layers.base import Context, Layer, Shape, check_images
from bppsa_cupy.raw_kernels.pools import (
    avg_pool2d_forward,
    avg_pool2d_vjp,
    max_pool2d_forward,
    max_pool2d_vjp,
)


class Pool2d(Layer):
    """Base class of pooling layers with PyTorch's arguments."""

    arguments: ClassVar[tuple[str, ...]] = ("kernel_size", "stride", "padding", "ceil_mode")

    def __init__(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        ceil_mode: bool = False,
    ) -> None:
        self.name = name = f"{type(self).__name__}({kernel_size})"
        self.kernel_size = as_pair(name, "kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else as_pair(name, "stride", stride, 1)
        self.padding = as_pair(name, "padding", padding, 0)
        self.ceil_mode = as_flag(name, "ceil_mode", ceil_mode)
        if any(2 * p > k for p, k in zip(self.padding, self.kernel_size, strict=True)):
            raise ShapeError(
                f"{name} got padding={self.padding} and kernel_size={self.kernel_size}: pass a padding of "
                "at most half the kernel size"
            )

    def geometry(self, input_shape: Shape) -> Pool2dGeometry:
        """Return the geometry of the pooling for an input shape (channels, rows, columns).

        Raises ShapeError if the input does not fit.
        """
        check_images(self.name, input_shape)
        channels, height, width = input_shape
        return Pool2dGeometry(
            channels, (height, width), self.kernel_size, self.stride, self.padding, self.ceil_mode
        )

    def scalars(self, images: Array, input_shape: Shape) -> tuple[int, ...]:
        """The number of planes of `images`, (B, channels, ...), and what else the layer's kernels take."""
        return math.prod(images.shape[:2]), *self.geometry(input_shape).scalars()

    def output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], *self.geometry(input_shape).out_size)


class MaxPool2d(Pool2d):
    """Maximum of each window of images (channels, height, width).

    Parameters
    ----------
    kernel_size : int or tuple of int
        Size of a window.
    stride : int or tuple of int, optional
        Distance between windows. By default `kernel_size`.
    padding : int or tuple of int, default: 0
        Rows and columns of padding on each side. A padded position is never the maximum.
    ceil_mode : bool, default: False
        Whether to round output sizes up.

    Raises
    ------
    ShapeError
        If a size is invalid, or an input does not fit.
    ArgumentError
        If `ceil_mode` is not a bool.

    Notes
    -----
    If several elements of a window are equal maxima, the first gets the gradient. NaN counts as the largest
    number. The pattern of the Jacobian contains every element of every window.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.MaxPool2d(2).output_shape((3, 8, 8))
    (3, 4, 4)
    """

    def jacobian(self, input_shape: Shape) -> MaxPool2dJacobian:
        return MaxPool2dJacobian(self.geometry(input_shape))

    def forward(self, ctx: Context, x: Array) -> Array:
        shape = (len(x), *self.output_shape(ctx.input_shape))
        y, indices = ctx.buffer("output", shape), ctx.buffer("indices", shape, np.int32)
        ctx.device.launch(max_pool2d_forward, x, y, indices, *self.scalars(x, ctx.input_shape))
        ctx.saved.update(output=y, indices=indices)
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        result = ctx.buffer("input_gradient", (gradient.shape[0], *ctx.input_shape))
        scalars = self.scalars(gradient, ctx.input_shape)
        ctx.device.launch(max_pool2d_vjp, gradient, ctx.saved["indices"], result, *scalars)
        return result


class AvgPool2d(Pool2d):
    """Mean of each window of images (channels, height, width).

    Parameters
    ----------
    kernel_size : int or tuple of int
        Size of a window.
    stride : int or tuple of int, optional
        Distance between windows. By default `kernel_size`.
    padding : int or tuple of int, default: 0
        Rows and columns of zeros on each side.
    ceil_mode : bool, default: False
        Whether to round output sizes up.
    count_include_pad : bool, default: True
        Whether the divisor counts the padding.

    Raises
    ------
    ShapeError
        If a size is invalid, or an input does not fit.
    ArgumentError
        If a flag is not a bool.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.Sequential([bp.AvgPool2d(2)], (1, 2, 2), device="host").forward([[[[1, 2], [3, 6]]]]).tolist()
    [[[[3.0]]]]
    """

    arguments = (*Pool2d.arguments, "count_include_pad")

    def __init__(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.count_include_pad = as_flag(self.name, "count_include_pad", count_include_pad)

    def jacobian(self, input_shape: Shape) -> AvgPool2dJacobian:
        geometry = self.geometry(input_shape)
        return AvgPool2dJacobian(geometry, geometry.divisors(self.count_include_pad))

    def scalars(self, images: Array, input_shape: Shape) -> tuple[int, ...]:
        return *super().scalars(images, input_shape), self.count_include_pad

    def forward(self, ctx: Context, x: Array) -> Array:
        y = ctx.buffer("output", (len(x), *self.output_shape(ctx.input_shape)))
        ctx.device.launch(avg_pool2d_forward, x, y, *self.scalars(x, ctx.input_shape))
        ctx.saved["output"] = y
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        result = ctx.buffer("input_gradient", (gradient.shape[0], *ctx.input_shape))
        ctx.device.launch(avg_pool2d_vjp, gradient, result, *self.scalars(gradient, ctx.input_shape))
        return result

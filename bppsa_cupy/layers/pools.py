"""Layers that take one number from each window of images: MaxPool2d, AvgPool2d and AdaptiveAvgPool2d."""

from __future__ import annotations

import abc
import math
from typing import Any, ClassVar

import numpy as np

from bppsa_cupy.arguments import as_flag, as_integer, as_pair
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.geometry import AdaptivePool2dGeometry, Pair, Pool2dGeometry
from bppsa_cupy.jacobians.avg_pool2d import AvgPool2dJacobian
from bppsa_cupy.jacobians.max_pool2d import MaxPool2dJacobian
from bppsa_cupy.layers.arguments import check_images
from bppsa_cupy.layers.base import Context, Layer, Shape
from bppsa_cupy.raw_kernels.kernel import Kernel
from bppsa_cupy.raw_kernels.pools import (
    adaptive_avg_pool2d_forward,
    adaptive_avg_pool2d_vjp,
    avg_pool2d_forward,
    avg_pool2d_vjp,
    max_pool2d_forward,
    max_pool2d_vjp,
)


class Windows(Layer):
    """One number for each window of images (channels, height, width)."""

    @abc.abstractmethod
    def geometry(self, input_shape: Shape) -> Any:
        """The sizes for one input shape. Raises ShapeError where the input does not fit."""

    def scalars(self, geometry: Any, images: Array) -> tuple[int, ...]:
        """The number of planes of `images`, (B, channels, ...), and what else the layer's kernels take."""
        return math.prod(images.shape[:2]), *geometry.scalars()

    def output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], *self.geometry(input_shape).out_size)

    def _average(self, ctx: Context, x: Array, kernel: Kernel) -> Array:
        geometry = self.geometry(ctx.input_shape)
        y = ctx.buffer("output", (*x.shape[:2], *geometry.out_size))
        ctx.device.launch(kernel, x, y, *self.scalars(geometry, x))
        ctx.saved["output"] = y
        return y

    def _average_vjp(self, ctx: Context, gradient: Array, kernel: Kernel) -> Array:
        result = ctx.buffer("input_gradient", (gradient.shape[0], *ctx.input_shape))
        ctx.device.launch(kernel, gradient, result, *self.scalars(self.geometry(ctx.input_shape), gradient))
        return result


class Pool2d(Windows):
    """One number for each window of images (channels, height, width); arguments are PyTorch's.

    Raises ShapeError for arguments that do not fit each other.
    """

    arguments: ClassVar[tuple[str, ...]] = ("kernel_size", "stride", "padding")

    def __init__(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        dilation: int | Pair = 1,
        ceil_mode: bool = False,
    ) -> None:
        self.name = name = f"{type(self).__name__}({kernel_size})"
        self.kernel_size = as_pair(name, "kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else as_pair(name, "stride", stride, 1)
        self.padding = as_pair(name, "padding", padding, 0)
        self.dilation = as_pair(name, "dilation", dilation, 1)
        self.ceil_mode = as_flag(name, "ceil_mode", ceil_mode)
        if any(2 * p > k for p, k in zip(self.padding, self.kernel_size, strict=True)):
            raise ShapeError(
                f"{name} got padding={self.padding} and kernel_size={self.kernel_size}: padding is at most "
                "half of it"
            )

    def geometry(self, input_shape: Shape) -> Pool2dGeometry:
        check_images(self.name, input_shape)
        channels, height, width = input_shape
        return Pool2dGeometry(
            channels, (height, width), self.kernel_size, self.stride, self.padding, self.dilation,
            self.ceil_mode,
        )  # fmt: skip


class MaxPool2d(Pool2d):
    """The maximum of each window of images (channels, height, width), as PyTorch's.

    The first of equal maxima gets the gradient; NaN is larger than every number. Positions outside the
    input are no candidates.

    Raises ShapeError for arguments that do not fit each other.
    """

    arguments = (*Pool2d.arguments, "dilation", "ceil_mode")

    def jacobian(self, input_shape: Shape) -> MaxPool2dJacobian:
        return MaxPool2dJacobian(self.geometry(input_shape))

    def forward(self, ctx: Context, x: Array) -> Array:
        geometry = self.geometry(ctx.input_shape)
        shape = (*x.shape[:2], *geometry.out_size)
        y, indices = ctx.buffer("output", shape), ctx.buffer("indices", shape, np.int32)
        ctx.device.launch(max_pool2d_forward, x, y, indices, *self.scalars(geometry, x))
        ctx.saved.update(output=y, indices=indices)
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        result = ctx.buffer("input_gradient", (gradient.shape[0], *ctx.input_shape))
        scalars = self.scalars(self.geometry(ctx.input_shape), gradient)
        ctx.device.launch(max_pool2d_vjp, gradient, ctx.saved["indices"], result, *scalars)
        return result


class AvgPool2d(Pool2d):
    """The mean of each window of images (channels, height, width), as PyTorch's.

    A window's sum is divided by `divisor_override` where that is given, else by its size: with
    `count_include_pad` the part in the padded input, without it the part in the input.

    Raises ShapeError for arguments that do not fit each other.
    """

    arguments = (*Pool2d.arguments, "ceil_mode", "count_include_pad", "divisor_override")

    def __init__(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, 1, ceil_mode)
        self.count_include_pad = as_flag(self.name, "count_include_pad", count_include_pad)
        self.divisor_override = divisor_override
        if divisor_override is not None:
            self.divisor_override = as_integer(self.name, "divisor_override", divisor_override)
        if self.divisor_override == 0:
            raise ShapeError(
                f"{self.name} got divisor_override=0: it must not be 0 (None for the window's size)"
            )

    def jacobian(self, input_shape: Shape) -> AvgPool2dJacobian:
        geometry = self.geometry(input_shape)
        return AvgPool2dJacobian(geometry, geometry.divisors(self.count_include_pad, self.divisor_override))

    def scalars(self, geometry: Any, images: Array) -> tuple[int, ...]:
        return *super().scalars(geometry, images), self.count_include_pad, self.divisor_override or 0

    def forward(self, ctx: Context, x: Array) -> Array:
        return self._average(ctx, x, avg_pool2d_forward)

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        return self._average_vjp(ctx, gradient, avg_pool2d_vjp)


Side = int | None


class AdaptiveAvgPool2d(Windows):
    """Means of images (channels, height, width) over windows that make the output `output_size`, as
    PyTorch's.

    output_size  rows and columns: an integer of at least 1 for both, or a pair; None is the input's own size

    Along an axis of n inputs and m outputs, window i holds the inputs from floor(i n / m) to
    ceil((i + 1) n / m): they overlap, and differ in size, where m does not divide n. Raises ShapeError.
    """

    arguments = ("output_size",)

    def __init__(self, output_size: Side | tuple[Side, Side]) -> None:
        sides = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * 2
        if len(sides) != 2 or not all(side is None or hasattr(side, "__index__") for side in sides):
            raise ShapeError(
                f"AdaptiveAvgPool2d got output_size={output_size!r}: it takes an integer, None or a pair of "
                "them"
            )
        self.output_size = tuple(
            None if side is None else as_integer("AdaptiveAvgPool2d", "output_size", side, 1)
            for side in sides
        )

    def geometry(self, input_shape: Shape) -> AdaptivePool2dGeometry:
        check_images("AdaptiveAvgPool2d", input_shape)
        channels, *own = input_shape
        height, width = (own[k] if side is None else side for k, side in enumerate(self.output_size))
        return AdaptivePool2dGeometry(channels, (own[0], own[1]), (height, width))

    def jacobian(self, input_shape: Shape) -> AvgPool2dJacobian:
        geometry = self.geometry(input_shape)
        return AvgPool2dJacobian(geometry, geometry.divisors())

    def forward(self, ctx: Context, x: Array) -> Array:
        return self._average(ctx, x, adaptive_avg_pool2d_forward)

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        return self._average_vjp(ctx, gradient, adaptive_avg_pool2d_vjp)

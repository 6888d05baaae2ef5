"""AdaptiveAvgPool2d."""

from __future__ import annotations

import math
from typing import Any

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.geometry import AdaptivePool2dGeometry
from bppsa_cupy.jacobians.avg_pool2d import AvgPool2dJacobian
from bppsa_cupy.layers.arguments import check_images
from bppsa_cupy.layers.base import Context, Layer, Shape
from bppsa_cupy.raw_kernels.pools import adaptive_avg_pool2d_forward, adaptive_avg_pool2d_vjp

Side = int | None


class AdaptiveAvgPool2d(Layer):
    """Means of images (channels, height, width) over windows that make the output `output_size`, as
    PyTorch's.

    output_size  rows and columns: an integer of at least 1 for both, or a pair; None is the input's own size

    Along an axis of n inputs and m outputs, window i holds the inputs from floor(i n / m) to
    ceil((i + 1) n / m): they overlap, and differ in size, where m does not divide n. Raises ShapeError.
    """

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

    def config(self) -> dict[str, Any]:
        height, width = self.output_size
        return {"output_size": height if height == width else [height, width]}

    def geometry(self, input_shape: Shape) -> AdaptivePool2dGeometry:
        """The sizes for one input shape. Raises ShapeError where the input does not fit."""
        check_images("AdaptiveAvgPool2d", input_shape)
        channels, *own = input_shape
        height, width = (own[k] if side is None else side for k, side in enumerate(self.output_size))
        return AdaptivePool2dGeometry(channels, (own[0], own[1]), (height, width))

    def output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], *self.geometry(input_shape).out_size)

    def jacobian(self, input_shape: Shape) -> AvgPool2dJacobian:
        geometry = self.geometry(input_shape)
        return AvgPool2dJacobian(geometry, geometry.divisors())

    def forward(self, ctx: Context, x: Array) -> Array:
        geometry = self.geometry(ctx.input_shape)
        y = ctx.buffer("output", (*x.shape[:2], *geometry.out_size))
        planes = math.prod(x.shape[:2])
        ctx.device.launch(adaptive_avg_pool2d_forward, x, y, planes, *geometry.scalars())
        ctx.saved["output"] = y
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        geometry = self.geometry(ctx.input_shape)
        result = ctx.buffer("input_gradient", (gradient.shape[0], *ctx.input_shape))
        planes = math.prod(gradient.shape[:2])
        ctx.device.launch(adaptive_avg_pool2d_vjp, gradient, result, planes, *geometry.scalars())
        return result

"""AvgPool2d."""

from __future__ import annotations

import math
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.geometry import Pair, Pool2dGeometry
from bppsa_cupy.jacobians.avg_pool2d import AvgPool2dJacobian
from bppsa_cupy.layers.arguments import as_argument, as_pair, check_half, check_images
from bppsa_cupy.layers.base import Layer, LayerPass, Shape
from bppsa_cupy.raw_kernels import avg_pool2d_forward, avg_pool2d_vjp


class AvgPool2d(Layer):
    """The mean of each window of images (channels, height, width), as PyTorch's.

    A window's sum is divided by `divisor_override` where that is given, else by its size: with
    `count_include_pad` the part in the padded input, without it the part in the input.

    Raises ShapeError for arguments that do not fit each other.
    """

    def __init__(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        self.name = name = f"AvgPool2d({kernel_size})"
        self.kernel_size = as_pair(name, "kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else as_pair(name, "stride", stride, 1)
        self.padding = as_pair(name, "padding", padding, 0)
        check_half(name, self.padding, self.kernel_size)
        self.ceil_mode, self.count_include_pad = bool(ceil_mode), bool(count_include_pad)
        if divisor_override == 0:
            raise ShapeError(f"{name} got divisor_override=0: it must not be 0 (None for the window's size)")
        self.divisor_override = None if divisor_override is None else int(divisor_override)

    def config(self) -> dict[str, Any]:
        return {
            "kernel_size": as_argument(self.kernel_size),
            "stride": as_argument(self.stride),
            "padding": as_argument(self.padding),
            "ceil_mode": self.ceil_mode,
            "count_include_pad": self.count_include_pad,
            "divisor_override": self.divisor_override,
        }

    def geometry(self, input_shape: Shape) -> Pool2dGeometry:
        """The sizes for one input shape. Raises ShapeError where the input does not fit."""
        check_images(self.name, input_shape)
        channels, height, width = input_shape
        return Pool2dGeometry(
            channels,
            (height, width),
            self.kernel_size,
            self.stride,
            self.padding,
            ceil_mode=self.ceil_mode,
        )

    def output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], *self.geometry(input_shape).out_size)

    def jacobian(self, input_shape: Shape) -> AvgPool2dJacobian:
        geometry = self.geometry(input_shape)
        return AvgPool2dJacobian(geometry, geometry.divisors(self.count_include_pad, self.divisor_override))

    def forward(self, state: LayerPass, x: Array) -> Array:
        geometry = self.geometry(state.input_shape)
        y = state.buffer("output", (*x.shape[:2], *geometry.out_size))
        state.device.launch(
            avg_pool2d_forward.KERNEL,
            x,
            y,
            math.prod(x.shape[:2]),
            *geometry.scalars(),
            self.count_include_pad,
            self.divisor_override or 0,
        )
        state.saved["output"] = y
        return y

    def vjp(self, state: LayerPass, gradient: Array) -> Array:
        result = state.buffer("input_gradient", (gradient.shape[0], *state.input_shape))
        state.device.launch(
            avg_pool2d_vjp.KERNEL,
            gradient,
            result,
            math.prod(gradient.shape[:2]),
            *self.geometry(state.input_shape).scalars(),
            self.count_include_pad,
            self.divisor_override or 0,
        )
        return result

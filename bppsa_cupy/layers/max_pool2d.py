"""MaxPool2d."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.geometry import Pair, Pool2dGeometry
from bppsa_cupy.jacobians.max_pool2d import MaxPool2dJacobian
from bppsa_cupy.layers.arguments import as_argument, as_pair, check_half, check_images
from bppsa_cupy.layers.base import Layer, LayerPass, Shape
from bppsa_cupy.raw_kernels import max_pool2d_forward, max_pool2d_vjp


class MaxPool2d(Layer):
    """The maximum of each window of images (channels, height, width), as PyTorch's.

    The first of equal maxima gets the gradient; NaN is larger than every number. Positions outside the
    input are no candidates.

    Raises ShapeError for arguments that do not fit each other.
    """

    def __init__(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        dilation: int | Pair = 1,
        ceil_mode: bool = False,
    ) -> None:
        self.name = name = f"MaxPool2d({kernel_size})"
        self.kernel_size = as_pair(name, "kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else as_pair(name, "stride", stride, 1)
        self.padding = as_pair(name, "padding", padding, 0)
        self.dilation = as_pair(name, "dilation", dilation, 1)
        self.ceil_mode = bool(ceil_mode)
        check_half(name, self.padding, self.kernel_size)

    def config(self) -> dict[str, Any]:
        return {
            "kernel_size": as_argument(self.kernel_size),
            "stride": as_argument(self.stride),
            "padding": as_argument(self.padding),
            "dilation": as_argument(self.dilation),
            "ceil_mode": self.ceil_mode,
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
            self.dilation,
            self.ceil_mode,
        )

    def output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], *self.geometry(input_shape).out_size)

    def jacobian(self, input_shape: Shape) -> MaxPool2dJacobian:
        return MaxPool2dJacobian(self.geometry(input_shape))

    def forward(self, state: LayerPass, x: Array) -> Array:
        geometry = self.geometry(state.input_shape)
        shape = (*x.shape[:2], *geometry.out_size)
        y, indices = state.buffer("output", shape), state.buffer("indices", shape, np.int32)
        state.device.launch(
            max_pool2d_forward.KERNEL, x, y, indices, math.prod(x.shape[:2]), *geometry.scalars()
        )
        state.saved.update(output=y, indices=indices)
        return y

    def vjp(self, state: LayerPass, gradient: Array) -> Array:
        geometry = self.geometry(state.input_shape)
        result = state.buffer("input_gradient", (gradient.shape[0], *state.input_shape))
        state.device.launch(
            max_pool2d_vjp.KERNEL,
            gradient,
            state.saved["indices"],
            result,
            math.prod(gradient.shape[:2]),
            *geometry.scalars(),
        )
        return result

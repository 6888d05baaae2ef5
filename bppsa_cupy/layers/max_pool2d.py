"""MaxPool2d."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.jacobians.max_pool2d import MaxPool2dJacobian
from bppsa_cupy.layers.arguments import as_argument
from bppsa_cupy.layers.base import Context, Shape
from bppsa_cupy.layers.pool2d import Pool2d
from bppsa_cupy.raw_kernels import max_pool2d_forward, max_pool2d_vjp


class MaxPool2d(Pool2d):
    """The maximum of each window of images (channels, height, width), as PyTorch's.

    The first of equal maxima gets the gradient; NaN is larger than every number. Positions outside the
    input are no candidates.

    Raises ShapeError for arguments that do not fit each other.
    """

    def config(self) -> dict[str, Any]:
        return {**super().config(), "dilation": as_argument(self.dilation), "ceil_mode": self.ceil_mode}

    def jacobian(self, input_shape: Shape) -> MaxPool2dJacobian:
        return MaxPool2dJacobian(self.geometry(input_shape))

    def forward(self, ctx: Context, x: Array) -> Array:
        geometry = self.geometry(ctx.input_shape)
        shape = (*x.shape[:2], *geometry.out_size)
        y, indices = ctx.buffer("output", shape), ctx.buffer("indices", shape, np.int32)
        ctx.device.launch(
            max_pool2d_forward.KERNEL, x, y, indices, math.prod(x.shape[:2]), *geometry.scalars()
        )
        ctx.saved.update(output=y, indices=indices)
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        geometry = self.geometry(ctx.input_shape)
        result = ctx.buffer("input_gradient", (gradient.shape[0], *ctx.input_shape))
        ctx.device.launch(
            max_pool2d_vjp.KERNEL,
            gradient,
            ctx.saved["indices"],
            result,
            math.prod(gradient.shape[:2]),
            *geometry.scalars(),
        )
        return result

"""MaxPool2d."""

from __future__ import annotations

from typing import Any

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.jacobians.max_pool2d import MaxPool2dJacobian
from bppsa_cupy.layers.arguments import as_argument
from bppsa_cupy.layers.base import Context, Shape
from bppsa_cupy.layers.pool2d import Pool2d
from bppsa_cupy.raw_kernels.pools import max_pool2d_forward, max_pool2d_vjp


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
        ctx.device.launch(max_pool2d_forward, x, y, indices, *self.scalars(geometry, x))
        ctx.saved.update(output=y, indices=indices)
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        result = ctx.buffer("input_gradient", (gradient.shape[0], *ctx.input_shape))
        scalars = self.scalars(self.geometry(ctx.input_shape), gradient)
        ctx.device.launch(max_pool2d_vjp, gradient, ctx.saved["indices"], result, *scalars)
        return result

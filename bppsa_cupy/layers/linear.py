"""Linear."""

from __future__ import annotations

import math
from typing import Any

from bppsa_cupy.arguments import as_flag, as_integer
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.geometry import Conv2dGeometry
from bppsa_cupy.jacobians.linear import LinearJacobian
from bppsa_cupy.layers.arguments import as_mask
from bppsa_cupy.layers.base import Context, Shape
from bppsa_cupy.layers.weighted import Weighted


class Linear(Weighted):
    """y = x Wᵀ + b over the last axis; weight (out_features, in_features), bias (out_features,).

    mask  optional array of the weight's shape: weights where it is 0 are 0 and stay 0, and are left
          out of the Jacobian's pattern
    """

    arguments = ("in_features", "out_features", "bias")

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, mask: Any = None) -> None:
        self.in_features = as_integer("Linear", "in_features", in_features, 1)
        self.out_features = as_integer("Linear", "out_features", out_features, 1)
        self.bias = as_flag("Linear", "bias", bias)
        self.mask = as_mask("Linear", mask, self.weight_shape)

    def output_shape(self, input_shape: Shape) -> Shape:
        if not input_shape or input_shape[-1] != self.in_features:
            raise ShapeError(
                f"Linear({self.in_features}, {self.out_features}) got input {input_shape}: its last size "
                f"must be {self.in_features}"
            )
        return (*input_shape[:-1], self.out_features)

    @property
    def weight_shape(self) -> Shape:
        return (self.out_features, self.in_features)

    def jacobian(self, input_shape: Shape) -> LinearJacobian:
        return LinearJacobian(self.in_features, self.out_features, math.prod(input_shape[:-1]), self.mask)

    def convolution(self, input_shape: Shape) -> Conv2dGeometry:
        return Conv2dGeometry(self.in_features, (1, 1), self.out_features, (1, 1))

    def samples(self, array: Array) -> Array:
        return array.reshape(-1, array.shape[-1], 1, 1)

    def dense_forward(self, ctx: Context, x: Array, y: Array) -> None:
        ctx.device.multiply(x, ctx.parameters["weight"].T, y)
        if self.bias:
            y += ctx.parameters["bias"]

    def dense_vjp(self, ctx: Context, gradient: Array, result: Array) -> None:
        ctx.device.multiply(gradient, ctx.parameters["weight"], result)

    def dense_parameter_gradients(self, ctx: Context, gradient: Array) -> None:
        rows = gradient.reshape(-1, self.out_features)
        x = ctx.saved["input"].reshape(-1, self.in_features)
        ctx.device.multiply(rows.T, x, ctx.gradients["weight"])
        if self.bias:
            rows.sum(axis=0, out=ctx.gradients["bias"])

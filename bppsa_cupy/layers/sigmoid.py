"""Sigmoid."""

from __future__ import annotations

import math
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.jacobians.sigmoid import SigmoidJacobian
from bppsa_cupy.layers.base import Layer, LayerPass, Shape


class Sigmoid(Layer):
    """y = 1 / (1 + exp(-x)), elementwise; any shape. As exact for large -x as for large x."""

    def config(self) -> dict[str, Any]:
        return {}

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def jacobian(self, input_shape: Shape) -> SigmoidJacobian:
        return SigmoidJacobian(math.prod(input_shape))

    def forward(self, state: LayerPass, x: Array) -> Array:
        xp = state.device.xp
        y, divisor = state.buffer("output", x.shape), state.buffer("divisor", x.shape)
        # exp(-|x|) never overflows: y = 1 / (1 + exp(-|x|)) for x >= 0, exp(-|x|) / (1 + exp(-|x|)) below.
        xp.abs(x, out=y)
        xp.negative(y, out=y)
        xp.exp(y, out=y)
        xp.add(y, 1, out=divisor)
        xp.copyto(y, 1, where=x >= 0)
        xp.divide(y, divisor, out=y)
        state.saved["output"] = y
        return y

    def vjp(self, state: LayerPass, gradient: Array) -> Array:
        xp, y = state.device.xp, state.saved["output"]
        result = state.buffer("input_gradient", gradient.shape)
        xp.subtract(1, y, out=result)
        xp.multiply(y, result, out=result)
        return xp.multiply(gradient, result, out=result)

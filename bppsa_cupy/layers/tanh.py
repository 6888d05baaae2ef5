"""Tanh."""

from __future__ import annotations

import math
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.jacobians.tanh import TanhJacobian
from bppsa_cupy.layers.base import Layer, LayerPass, Shape


class Tanh(Layer):
    """y = tanh(x), elementwise; any shape."""

    def config(self) -> dict[str, Any]:
        return {}

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def jacobian(self, input_shape: Shape) -> TanhJacobian:
        return TanhJacobian(math.prod(input_shape))

    def forward(self, state: LayerPass, x: Array) -> Array:
        y = state.buffer("output", x.shape)
        state.device.xp.tanh(x, out=y)
        state.saved["output"] = y
        return y

    def vjp(self, state: LayerPass, gradient: Array) -> Array:
        xp, y = state.device.xp, state.saved["output"]
        result = state.buffer("input_gradient", gradient.shape)
        xp.multiply(y, y, out=result)
        xp.subtract(1, result, out=result)
        return xp.multiply(gradient, result, out=result)

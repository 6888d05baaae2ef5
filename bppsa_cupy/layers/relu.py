"""ReLU."""

from __future__ import annotations

import math
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.jacobians.relu import ReLUJacobian
from bppsa_cupy.layers.base import Layer, LayerPass, Shape
from bppsa_cupy.raw_kernels import relu_forward, relu_vjp


class ReLU(Layer):
    """y = max(x, 0), elementwise; any shape. The derivative at 0 is 0, as PyTorch's."""

    def config(self) -> dict[str, Any]:
        return {}

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def jacobian(self, input_shape: Shape) -> ReLUJacobian:
        return ReLUJacobian(math.prod(input_shape))

    def forward(self, state: LayerPass, x: Array) -> Array:
        y = state.buffer("output", x.shape)
        state.device.launch(relu_forward.KERNEL, x, y, y.size)
        state.saved["output"] = y
        return y

    def vjp(self, state: LayerPass, gradient: Array) -> Array:
        result = state.buffer("input_gradient", gradient.shape)
        state.device.launch(relu_vjp.KERNEL, state.saved["output"], gradient, result, result.size)
        return result

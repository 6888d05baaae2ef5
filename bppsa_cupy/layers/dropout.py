"""Dropout (Srivastava et al. 2014)."""

from __future__ import annotations

import math
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.jacobians.dropout import DropoutJacobian
from bppsa_cupy.layers.arguments import as_probability
from bppsa_cupy.layers.base import Layer, LayerPass, Shape
from bppsa_cupy.raw_kernels import dropout_forward


class Dropout(Layer):
    """In training mode every element is 0 with probability p, and else divided by 1 - p; in evaluation mode
    the output is the input. Any shape.

    What is dropped follows from the network's seed, the layer's index and the number of the training pass
    (`LayerPass.draw`): the same on every device and for both dtypes. Raises ShapeError unless 0 <= p <= 1.
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = as_probability("Dropout", "p", p)

    def config(self) -> dict[str, Any]:
        return {"p": self.p}

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def jacobian(self, input_shape: Shape) -> DropoutJacobian:
        return DropoutJacobian(math.prod(input_shape))

    def forward(self, state: LayerPass, x: Array) -> Array:
        if not state.training:
            state.saved.update(output=x, kept=None, scale=1.0)
            return x
        y, kept = state.buffer("output", x.shape), state.buffer("kept", x.shape, "uint8")
        scale = 1 / (1 - self.p) if self.p < 1 else 0.0
        state.device.launch(
            dropout_forward.KERNEL, x, y, kept, y.size, *state.draw, round(self.p * 2**32), scale
        )
        state.saved.update(output=y, kept=kept, scale=scale)
        return y

    def vjp(self, state: LayerPass, gradient: Array) -> Array:
        if state.saved["kept"] is None:
            return gradient
        result = state.buffer("input_gradient", gradient.shape)
        state.device.xp.multiply(gradient, state.saved["kept"], out=result)
        result *= state.saved["scale"]
        return result

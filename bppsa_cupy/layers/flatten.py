"""Flatten."""

from __future__ import annotations

import math
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.layers.base import Layer, LayerPass, Shape


class Flatten(Layer):
    """(B, ...) to (B, product of the rest). It only reshapes, so it is no element of the scan."""

    def config(self) -> dict[str, Any]:
        return {}

    def output_shape(self, input_shape: Shape) -> Shape:
        return (math.prod(input_shape),)

    def jacobian(self, input_shape: Shape) -> None:
        return None

    def forward(self, state: LayerPass, x: Array) -> Array:
        y = x.reshape(x.shape[0], math.prod(state.input_shape))
        state.saved["output"] = y
        return y

    def vjp(self, state: LayerPass, gradient: Array) -> Array:
        return gradient.reshape(gradient.shape[0], *state.input_shape)

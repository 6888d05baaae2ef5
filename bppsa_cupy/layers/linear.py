"""Linear."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.jacobians.linear import LinearJacobian
from bppsa_cupy.layers.arguments import as_size
from bppsa_cupy.layers.base import Layer, LayerPass, Shape, uniform_fan_in
from bppsa_cupy.layers.masks import as_mask


class Linear(Layer):
    """y = x Wᵀ + b over the last axis; weight (out_features, in_features), bias (out_features,).

    mask  optional array of the weight's shape: weights where it is 0 are 0 and stay 0, and are left
          out of the Jacobian's pattern
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, mask: Any = None) -> None:
        self.in_features = as_size("Linear", "in_features", in_features)
        self.out_features = as_size("Linear", "out_features", out_features)
        self.bias = bool(bias)
        self.mask = as_mask("Linear", mask, (self.out_features, self.in_features))

    def config(self) -> dict[str, Any]:
        return {"in_features": self.in_features, "out_features": self.out_features, "bias": self.bias}

    def output_shape(self, input_shape: Shape) -> Shape:
        if not input_shape or input_shape[-1] != self.in_features:
            raise ShapeError(
                f"Linear({self.in_features}, {self.out_features}) got input {input_shape}: its last size "
                f"must be {self.in_features}"
            )
        return (*input_shape[:-1], self.out_features)

    def parameter_shapes(self) -> dict[str, Shape]:
        weight = (self.out_features, self.in_features)
        return {"weight": weight, "bias": (self.out_features,)} if self.bias else {"weight": weight}

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        shapes = self.parameter_shapes()
        arrays = {name: uniform_fan_in(generator, s, self.in_features) for name, s in shapes.items()}
        if self.mask is not None:
            arrays["weight"] *= self.mask
        return arrays

    def masks(self) -> dict[str, np.ndarray]:
        return {} if self.mask is None else {"weight": self.mask}

    def jacobian(self, input_shape: Shape) -> LinearJacobian:
        return LinearJacobian(self.in_features, self.out_features, math.prod(input_shape[:-1]), self.mask)

    def vjp_multiply_adds(self, input_shape: Shape) -> int:
        """Of a dense product, whatever the mask."""
        return math.prod(input_shape) * self.out_features

    def forward(self, state: LayerPass, x: Array) -> Array:
        y = state.buffer("output", (*x.shape[:-1], self.out_features))
        state.device.xp.matmul(x, state.parameters["weight"].T, out=y)
        if self.bias:
            y += state.parameters["bias"]
        state.saved.update(input=x, output=y)
        return y

    def vjp(self, state: LayerPass, gradient: Array) -> Array:
        result = state.buffer("input_gradient", (*gradient.shape[:-1], self.in_features))
        state.device.xp.matmul(gradient, state.parameters["weight"], out=result)
        return result

    def parameter_gradients(self, state: LayerPass, gradient: Array) -> None:
        rows = gradient.reshape(-1, self.out_features)
        x = state.saved["input"].reshape(-1, self.in_features)
        weight = state.gradients["weight"]
        state.device.xp.matmul(rows.T, x, out=weight)
        if "weight" in state.masks:
            weight *= state.masks["weight"]
        if self.bias:
            state.device.xp.sum(rows, axis=0, out=state.gradients["bias"])

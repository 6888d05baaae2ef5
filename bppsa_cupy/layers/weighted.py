"""What layers share that are linear in their input: a weight, which a mask may thin out, and a bias."""

from __future__ import annotations

import abc
import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bppsa_cupy.layers.arguments import as_mask
from bppsa_cupy.layers.base import Layer, Shape, uniform_fan_in


class Weighted(Layer):
    """A layer with a `weight` whose first axis is the outputs', and a `bias` (outputs,).

    bias  whether it has one
    mask  bool, read-only, of the weight's shape: weights where it is False are 0 and stay 0, and are left
          out of the Jacobian's pattern; None keeps all
    """

    bias: bool
    mask: np.ndarray | None

    @property
    @abc.abstractmethod
    def weight_shape(self) -> Shape:
        """The weight's shape, (outputs, ...); one output sums over the rest."""

    def parameter_shapes(self) -> dict[str, Shape]:
        weight = self.weight_shape
        return {"weight": weight, "bias": weight[:1]} if self.bias else {"weight": weight}

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        fan_in = math.prod(self.weight_shape[1:])
        shapes = self.parameter_shapes()
        arrays = {name: uniform_fan_in(generator, shape, fan_in) for name, shape in shapes.items()}
        if self.mask is not None:
            arrays["weight"] *= self.mask
        return arrays

    def masks(self) -> dict[str, np.ndarray]:
        return {} if self.mask is None else {"weight": self.mask}

    def maskable(self) -> tuple[str, ...]:
        return ("weight",)

    def with_masks(self, masks: Mapping[str, Any]) -> Weighted:
        result = copy.copy(self)
        result.mask = as_mask(repr(self), masks.get("weight"), self.weight_shape)
        return result

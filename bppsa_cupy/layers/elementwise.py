"""What layers share that apply one function to every element."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from bppsa_cupy.jacobians.diagonal import DiagonalJacobian
from bppsa_cupy.layers.base import Layer, Shape


class Elementwise(Layer):
    """y = f(x), element by element; any shape, and no arguments unless a subclass adds them.

    diagonal  the class of the transposed Jacobian, which is made of the number of elements
    """

    diagonal: ClassVar[type[DiagonalJacobian]]

    def config(self) -> dict[str, Any]:
        return {}

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def jacobian(self, input_shape: Shape) -> DiagonalJacobian:
        return self.diagonal(math.prod(input_shape))

"""Flatten."""

from __future__ import annotations

import math
from typing import Any

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.base import Context, Layer, Shape


class Flatten(Layer):
    """Joins the axes from `start_dim` to `end_dim` into one, the batch counted as axis 0, as PyTorch's.

    It only reshapes, so it is no element of the scan. The batch stays an axis of its own: start_dim = 0
    raises ShapeError.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = as_integer("Flatten", "start_dim", start_dim)
        self.end_dim = as_integer("Flatten", "end_dim", end_dim)
        if self.start_dim == 0 or self.end_dim == 0:
            raise ShapeError(f"{self!r} would join the batch, axis 0: start at 1")

    def config(self) -> dict[str, Any]:
        return {"start_dim": self.start_dim, "end_dim": self.end_dim}

    def output_shape(self, input_shape: Shape) -> Shape:
        axes = len(input_shape) + 1
        start, end = (axis + axes if axis < 0 else axis for axis in (self.start_dim, self.end_dim))
        if not 1 <= start <= end < axes:
            raise ShapeError(
                f"{self!r} got input {input_shape}: with the batch it has axes 0 to {axes - 1}, and the axes "
                "joined must lie among 1 and up, in rising order"
            )
        return (*input_shape[: start - 1], math.prod(input_shape[start - 1 : end]), *input_shape[end:])

    def jacobian(self, input_shape: Shape) -> None:
        return None

    def forward(self, ctx: Context, x: Array) -> Array:
        y = x.reshape(x.shape[0], *self.output_shape(x.shape[1:]))
        ctx.saved.update(output=y, input_shape=x.shape)
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        return gradient.reshape(ctx.saved["input_shape"])

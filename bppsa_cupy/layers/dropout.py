"""Dropout (Srivastava et al. 2014)."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.arguments import as_probability
from bppsa_cupy.devices import Array
from bppsa_cupy.jacobians.diagonal import DropoutJacobian
from bppsa_cupy.layers.base import Context
from bppsa_cupy.layers.elementwise import Elementwise
from bppsa_cupy.raw_kernels.elementwise import dropout_forward


class Dropout(Elementwise):
    """In training mode every element is 0 with probability p, and else divided by 1 - p; in evaluation mode
    the output is the input. Any shape.

    What is dropped follows from the network's seed, the layer's index and the number of the training pass
    (`Context.draw`), and from the number of the sample in its batch: the same on every device and for both
    dtypes. Raises ShapeError unless 0 <= p <= 1.
    """

    diagonal = DropoutJacobian

    def __init__(self, p: float = 0.5) -> None:
        self.p = as_probability("Dropout", "p", p)

    def config(self) -> dict[str, Any]:
        return {"p": self.p}

    def forward(self, ctx: Context, x: Array) -> Array:
        if not ctx.training:
            ctx.saved.update(output=x, kept=None, scale=1.0)
            return x
        y, kept = ctx.buffer("output", x.shape), ctx.buffer("kept", x.shape, "uint8")
        scale = 1 / (1 - self.p) if self.p < 1 else 0.0
        key, layer, passes = ctx.draw
        if not isinstance(passes, ctx.device.xp.ndarray):
            passes = ctx.buffer("passes", (1,), "int64")
            passes[...] = ctx.draw[2]
        first = ctx.first_sample * (y.size // max(len(y), 1))
        ctx.device.launch(
            dropout_forward,
            x,
            y,
            kept,
            passes,
            y.size,
            first,
            key,
            layer,
            round(self.p * 2**32),
            scale,
        )
        ctx.saved.update(output=y, kept=kept, scale=scale)
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        if ctx.saved["kept"] is None:
            return gradient
        result = ctx.buffer("input_gradient", gradient.shape)
        ctx.device.xp.multiply(gradient, ctx.saved["kept"], out=result)
        result *= ctx.saved["scale"]
        return result

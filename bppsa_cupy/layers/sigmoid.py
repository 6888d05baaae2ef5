"""Sigmoid."""

from __future__ import annotations

from bppsa_cupy.devices import Array
from bppsa_cupy.jacobians.sigmoid import SigmoidJacobian
from bppsa_cupy.layers.base import Context
from bppsa_cupy.layers.elementwise import Elementwise


class Sigmoid(Elementwise):
    """y = 1 / (1 + exp(-x)), elementwise; any shape. As exact for large -x as for large x."""

    diagonal = SigmoidJacobian

    def forward(self, ctx: Context, x: Array) -> Array:
        xp = ctx.device.xp
        y, divisor = ctx.buffer("output", x.shape), ctx.buffer("divisor", x.shape)
        # exp(-|x|) never overflows: y = 1 / (1 + exp(-|x|)) for x >= 0, exp(-|x|) / (1 + exp(-|x|)) below.
        xp.abs(x, out=y)
        xp.negative(y, out=y)
        xp.exp(y, out=y)
        xp.add(y, 1, out=divisor)
        xp.copyto(y, 1, where=x >= 0)
        xp.divide(y, divisor, out=y)
        ctx.saved["output"] = y
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        xp, y = ctx.device.xp, ctx.saved["output"]
        result = ctx.buffer("input_gradient", gradient.shape)
        xp.subtract(1, y, out=result)
        xp.multiply(y, result, out=result)
        return xp.multiply(gradient, result, out=result)

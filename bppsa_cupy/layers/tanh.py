"""Tanh."""

from __future__ import annotations

from bppsa_cupy.devices import Array
from bppsa_cupy.jacobians.tanh import TanhJacobian
from bppsa_cupy.layers.base import Context
from bppsa_cupy.layers.elementwise import Elementwise


class Tanh(Elementwise):
    """y = tanh(x), elementwise; any shape."""

    diagonal = TanhJacobian

    def forward(self, ctx: Context, x: Array) -> Array:
        y = ctx.buffer("output", x.shape)
        ctx.device.xp.tanh(x, out=y)
        ctx.saved["output"] = y
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        xp, y = ctx.device.xp, ctx.saved["output"]
        result = ctx.buffer("input_gradient", gradient.shape)
        xp.multiply(y, y, out=result)
        xp.subtract(1, result, out=result)
        return xp.multiply(gradient, result, out=result)

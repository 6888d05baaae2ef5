"""ReLU."""

from __future__ import annotations

from bppsa_cupy.devices import Array
from bppsa_cupy.jacobians.diagonal import ReLUJacobian
from bppsa_cupy.layers.base import Context
from bppsa_cupy.layers.elementwise import Elementwise
from bppsa_cupy.raw_kernels.elementwise import relu_forward, relu_vjp


class ReLU(Elementwise):
    """y = max(x, 0), elementwise; any shape. The derivative at 0 is 0, as PyTorch's."""

    diagonal = ReLUJacobian
    backward_reads = ("output",)

    def forward(self, ctx: Context, x: Array) -> Array:
        y = ctx.buffer("output", x.shape)
        ctx.device.launch(relu_forward, x, y, y.size)
        ctx.saved["output"] = y
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        result = ctx.buffer("input_gradient", gradient.shape)
        ctx.device.launch(relu_vjp, ctx.saved["output"], gradient, result, result.size)
        return result

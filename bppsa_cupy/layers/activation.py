"""What activations share whose kernel gives output and slope together."""

from __future__ import annotations

from typing import ClassVar

from bppsa_cupy.devices import Array
from bppsa_cupy.jacobians.diagonal import ActivationJacobian
from bppsa_cupy.layers.base import Context
from bppsa_cupy.layers.elementwise import Elementwise
from bppsa_cupy.raw_kernels.kernel import Kernel


class Activation(Elementwise):
    """y = f(x) where f and f' cost little more than f: the forward pass keeps f'(x), and the way back, by
    whatever method, only multiplies.

    kernel  takes (input, output, slope, size) and then `scalars()`
    """

    diagonal = ActivationJacobian
    kernel: ClassVar[Kernel]

    def scalars(self) -> tuple[float, ...]:
        """What the kernel takes of the layer's arguments; by default all of them."""
        return tuple(self.config().values())

    def forward(self, ctx: Context, x: Array) -> Array:
        y, slope = ctx.buffer("output", x.shape), ctx.buffer("slope", x.shape)
        ctx.device.launch(self.kernel, x, y, slope, y.size, *self.scalars())
        ctx.saved.update(output=y, slope=slope)
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        result = ctx.buffer("input_gradient", gradient.shape)
        return ctx.device.xp.multiply(gradient, ctx.saved["slope"], out=result)

"""PadShortcut: the shortcut of option A (He et al. 2016, section 3.3)."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.jacobians.pad_shortcut import PadShortcutJacobian
from bppsa_cupy.layers.arguments import check_images
from bppsa_cupy.layers.base import Context, Layer, Shape


class PadShortcut(Layer):
    """Every `stride`-th pixel of images (C, height, width), padded to `channels` channels with zeros, half of
    them before the images' own, the odd one after. No parameters.

    Raises ShapeError where the images have more than `channels` channels.
    """

    def __init__(self, channels: int, stride: int = 2) -> None:
        self.channels = as_integer("PadShortcut", "channels", channels, 1)
        self.stride = as_integer("PadShortcut", "stride", stride, 1)

    def config(self) -> dict[str, Any]:
        return {"channels": self.channels, "stride": self.stride}

    def output_shape(self, input_shape: Shape) -> Shape:
        check_images(repr(self), input_shape)
        if input_shape[0] > self.channels:
            raise ShapeError(
                f"{self!r} got input {input_shape}: {input_shape[0]} channels, it pads to {self.channels}"
            )
        return (self.channels, *(-(-size // self.stride) for size in input_shape[1:]))

    def jacobian(self, input_shape: Shape) -> PadShortcutJacobian:
        before = self._own(input_shape).start
        return PadShortcutJacobian(input_shape, self.output_shape(input_shape), self.stride, before)

    def forward(self, ctx: Context, x: Array) -> Array:
        y = ctx.buffer("output", (x.shape[0], *self.output_shape(ctx.input_shape)))
        y[...] = 0
        y[:, self._own(ctx.input_shape)] = x[:, :, :: self.stride, :: self.stride]
        ctx.saved["output"] = y
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        result = ctx.buffer("input_gradient", (gradient.shape[0], *ctx.input_shape))
        result[...] = 0
        result[:, :, :: self.stride, :: self.stride] = gradient[:, self._own(ctx.input_shape)]
        return result

    def _own(self, input_shape: Shape) -> slice:
        """Where in the output the images' channels are."""
        before = (self.channels - input_shape[0]) // 2
        return slice(before, before + input_shape[0])

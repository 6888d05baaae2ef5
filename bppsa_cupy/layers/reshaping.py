"""Layers that only move or drop elements: Flatten and PadShortcut."""

from __future__ import annotations

import math

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.jacobians.pad_shortcut import PadShortcutJacobian
from bppsa_cupy.layers.arguments import check_images
from bppsa_cupy.layers.base import Context, Layer, Shape


class Flatten(Layer):
    """Joins the axes from `start_dim` to `end_dim` into one, the batch counted as axis 0, as PyTorch's.

    It only reshapes, so it is no element of the scan. The batch stays an axis of its own: start_dim = 0
    raises ShapeError.
    """

    arguments = ("start_dim", "end_dim")

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = as_integer("Flatten", "start_dim", start_dim)
        self.end_dim = as_integer("Flatten", "end_dim", end_dim)
        if self.start_dim == 0 or self.end_dim == 0:
            raise ShapeError(f"{self!r} would join the batch, axis 0: start at 1")

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


class PadShortcut(Layer):
    """Every `stride`-th pixel of images (C, height, width), padded to `channels` channels with zeros, half of
    them before the images' own, the odd one after. No parameters.

    Raises ShapeError where the images have more than `channels` channels.
    """

    arguments = ("channels", "stride")

    def __init__(self, channels: int, stride: int = 2) -> None:
        self.channels = as_integer("PadShortcut", "channels", channels, 1)
        self.stride = as_integer("PadShortcut", "stride", stride, 1)

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

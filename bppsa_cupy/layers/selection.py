"""Layers that copy elements of images to their output: Pad2d and PadShortcut."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from itertools import product
from typing import Any

from bppsa_cupy.arguments import as_choice, as_integer
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.jacobians.selection import Piece, SelectionJacobian
from bppsa_cupy.layers.base import Context, Layer, Shape, check_images

MODES = ("zeros", "circular", "reflect")


class Selection(Layer):
    """Base class of layers whose output elements are copies of input elements, or 0."""

    @abc.abstractmethod
    def pieces(self, input_shape: Shape) -> list[Piece]:
        """Pairs of indices into (B, *output) and (B, *input) of the copied elements.

        The first piece of the input has no element twice.
        """

    def jacobian(self, input_shape: Shape) -> SelectionJacobian:
        return SelectionJacobian(input_shape, self.output_shape(input_shape), self.pieces(input_shape))

    def forward(self, ctx: Context, x: Array) -> Array:
        y = ctx.buffer("output", (x.shape[0], *self.output_shape(ctx.input_shape)))
        y[...] = 0
        for place, source in self.pieces(ctx.input_shape):
            y[place] = x[source]
        ctx.saved["output"] = y
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        result = ctx.buffer("input_gradient", (gradient.shape[0], *ctx.input_shape))
        result[...] = 0
        (place, source), *others = self.pieces(ctx.input_shape)
        result[source] = gradient[place]
        for place, source in others:
            result[source] += gradient[place]
        return result


class Pad2d(Selection):
    """Pad images (channels, height, width) on all sides, like `torch.nn.functional.pad`.

    Parameters
    ----------
    padding : int or (left, right, top, bottom)
        Pixels per side, at least 0.
    mode : {"zeros", "circular", "reflect"}, default: "zeros"
        Content of the border: zeros, the opposite side of the image, or the image mirrored at its outermost
        pixels.

    Raises
    ------
    ArgumentError
        If `mode` is unknown.
    ShapeError
        If `padding` is invalid, or an image is too small: for "circular" it must be at least as large as the
        padding, for "reflect" larger than the padding.

    Examples
    --------
    A convolution with periodic boundary conditions:

    >>> import bppsa_cupy as bp
    >>> layers = [bp.Pad2d(1, "circular"), bp.Conv2d(3, 8, 3)]
    >>> bp.Sequential(layers, input_shape=(3, 6, 6)).output_shape
    (8, 6, 6)
    """

    arguments = ("padding", "mode")

    def __init__(self, padding: int | Sequence[int], mode: str = "zeros") -> None:
        sides: list[Any] = list(padding) if isinstance(padding, (tuple, list)) else [padding] * 4
        if len(sides) != 4:
            raise ShapeError(f"Pad2d got padding={padding!r}: pass an integer or (left, right, top, bottom)")
        sides = [as_integer("Pad2d", "padding", side, 0) for side in sides]
        self.sides: list[int] = sides
        self.padding = sides[0] if len(set(sides)) == 1 else sides
        self.mode = as_choice("Pad2d", "mode", mode, MODES)

    def output_shape(self, input_shape: Shape) -> Shape:
        check_images(repr(self), input_shape)
        channels, height, width = input_shape
        left, right, top, bottom = self.sides
        for size, most in ((width, max(left, right)), (height, max(top, bottom))):
            least = {"zeros": 0, "circular": most, "reflect": most + 1}[self.mode]
            if size < least:
                raise ShapeError(
                    f"{self!r} got input {input_shape} with a side of {size} pixels, but this padding needs "
                    f"at least {least}: use a smaller padding"
                )
        return channels, top + height + bottom, left + width + right

    def pieces(self, input_shape: Shape) -> list[Piece]:
        left, right, top, bottom = self.sides
        rows, columns = self._axis(input_shape[1], top, bottom), self._axis(input_shape[2], left, right)
        every = slice(None)
        return [
            ((every, every, row[0], column[0]), (every, every, row[1], column[1]))
            for row, column in product(rows, columns)
        ]

    def _axis(self, size: int, before: int, after: int) -> list[tuple[slice, slice]]:
        """The copies along one axis: the image itself, then its borders."""
        end, last = before + size, size - 2
        pairs = [(slice(before, end), slice(0, size))]
        if self.mode == "zeros":
            return pairs
        first, second = slice(size - before, size), slice(0, after)
        if self.mode == "reflect":
            first, second = slice(before, 0, -1), slice(last, last - after if after <= last else None, -1)
        if before:
            pairs.append((slice(0, before), first))
        if after:
            pairs.append((slice(end, end + after), second))
        return pairs


class PadShortcut(Selection):
    """Shortcut for residual blocks: select every `stride`-th pixel, and add channels of zeros.

    Parameters
    ----------
    channels : int
        Number of output channels. Half of the added channels, rounded down, come before the input channels,
        and the rest after them.
    stride : int, default: 2
        Distance between the selected pixels, in both directions.

    Raises
    ------
    ShapeError
        If the input has more than `channels` channels.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.PadShortcut(8).output_shape((4, 16, 16))
    (8, 8, 8)
    """

    arguments = ("channels", "stride")

    def __init__(self, channels: int, stride: int = 2) -> None:
        self.channels = as_integer("PadShortcut", "channels", channels, 1)
        self.stride = as_integer("PadShortcut", "stride", stride, 1)

    def output_shape(self, input_shape: Shape) -> Shape:
        check_images(repr(self), input_shape)
        if input_shape[0] > self.channels:
            raise ShapeError(
                f"{self!r} got input {input_shape} with {input_shape[0]} channels: use PadShortcut with "
                f"channels >= {input_shape[0]}"
            )
        return (self.channels, *(-(-size // self.stride) for size in input_shape[1:]))

    def pieces(self, input_shape: Shape) -> list[Piece]:
        before, stepped = (self.channels - input_shape[0]) // 2, slice(None, None, self.stride)
        place = slice(None), slice(before, before + input_shape[0])
        return [(place, (slice(None), slice(None), stepped, stepped))]

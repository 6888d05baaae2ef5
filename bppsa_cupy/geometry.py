"""Sizes of windowed operators as plain integers: which input positions each output position sees."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from bppsa_cupy.errors import ShapeError

Pair = tuple[int, int]


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a sliding window: output o and tap k see input o * stride + k * dilation - padding.

    Attributes
    ----------
    inputs, outputs : int
        Sizes of the axis on both sides.
    kernel : int
        Number of taps.
    padding : int
        Positions added before the first input; taps that fall outside see nothing.
    """

    inputs: int
    outputs: int
    kernel: int
    stride: int
    padding: int
    dilation: int

    def taps(self) -> AxisTaps:
        """All (input, output, tap) triples that see an input, sorted by input, then output."""
        output, tap = (side.ravel() for side in np.indices((self.outputs, self.kernel)))
        position = output * self.stride + tap * self.dilation - self.padding
        inside = (position >= 0) & (position < self.inputs)
        position, output, tap = position[inside], output[inside], tap[inside]
        order = np.lexsort((output, position))
        counts = np.bincount(position, minlength=self.inputs)
        return AxisTaps(counts, output[order].astype(np.int64), tap[order])


@dataclass(frozen=True, eq=False)
class AxisTaps:
    """The triples of an axis by input: input i has `counts[i]` neighbours in `outputs` and `taps`."""

    counts: np.ndarray
    outputs: np.ndarray
    taps: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """(inputs,) where each input's neighbours start."""
        return np.concatenate([[0], np.cumsum(self.counts)[:-1]])


@dataclass(frozen=True)
class Conv2dGeometry:
    """A two-dimensional convolution of inputs (in_channels, *in_size), PyTorch's argument meaning.

    Attributes
    ----------
    padding : Pair
        Rows and columns added before the input.
    padding_end : Pair
        Rows and columns added after it (differs from `padding` for "same" only).
    """

    in_channels: int
    in_size: Pair
    out_channels: int
    kernel_size: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    padding_end: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    @cached_property
    def out_size(self) -> Pair:
        """(rows, columns) of an output plane; below 1 where the padded input is smaller than the dilated
        kernel."""
        return self._outputs(0), self._outputs(1)

    def _outputs(self, axis: int) -> int:
        padded = self.in_size[axis] + self.padding[axis] + self.padding_end[axis]
        return (padded - self.dilation[axis] * (self.kernel_size[axis] - 1) - 1) // self.stride[axis] + 1

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """The vertical and the horizontal axis."""
        return _axes(self)

    def scalars(self) -> tuple[int, ...]:
        """The sizes as the convolution kernels take them after the batch."""
        return (
            self.in_channels,
            *self.in_size,
            self.out_channels,
            *self.out_size,
            *self.kernel_size,
            *self.stride,
            *self.padding,
            *self.dilation,
            self.groups,
        )


@dataclass(frozen=True)
class Pool2dGeometry:
    """A two-dimensional pooling of (channels, *in_size), PyTorch's argument meaning.

    Raises ShapeError where no window fits.
    """

    channels: int
    in_size: Pair
    kernel_size: Pair
    stride: Pair
    padding: Pair = (0, 0)
    ceil_mode: bool = False
    dilation: ClassVar[Pair] = (1, 1)

    def __post_init__(self) -> None:
        if min(self.in_size) < 1 or min(self.out_size) < 1:
            raise ShapeError(
                f"a pooling window of size {self.kernel_size} does not fit an input of size {self.in_size} "
                f"with padding {self.padding}: use a smaller window or larger input"
            )

    @cached_property
    def out_size(self) -> Pair:
        """(rows, columns) of an output plane. With ceil_mode, windows that would start in the padding
        after the input are left out."""
        sizes = []
        for size, kernel, stride, padding in zip(
            self.in_size, self.kernel_size, self.stride, self.padding, strict=True
        ):
            room = size + 2 * padding - kernel
            count = (room + (stride - 1 if self.ceil_mode else 0)) // stride + 1
            if self.ceil_mode and (count - 1) * stride >= size + padding:
                count -= 1
            sizes.append(count)
        return sizes[0], sizes[1]

    def divisors(self, count_include_pad: bool) -> np.ndarray:
        """Return the divisor of each window of a plane in an average pooling, (*out_size)."""
        extents = []
        for axis in self.axes:
            start = np.arange(axis.outputs) * axis.stride - axis.padding
            end = np.minimum(start + axis.kernel, axis.inputs + axis.padding)
            if not count_include_pad:
                start, end = np.maximum(start, 0), np.minimum(end, axis.inputs)
            extents.append((end - start).astype(float))
        return np.outer(*extents)

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """The vertical and the horizontal axis."""
        return _axes(self)

    def scalars(self) -> tuple[int, ...]:
        """The sizes as the pooling kernels take them after the number of planes."""
        return *self.in_size, *self.out_size, *self.kernel_size, *self.stride, *self.padding


def _axes(g: Conv2dGeometry | Pool2dGeometry) -> tuple[Axis, Axis]:
    vertical, horizontal = (
        Axis(g.in_size[k], g.out_size[k], g.kernel_size[k], g.stride[k], g.padding[k], g.dilation[k])
        for k in range(2)
    )
    return vertical, horizontal

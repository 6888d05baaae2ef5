"""Layers that go by the list of the weights that a mask keeps, where a fixed rule says that it is quicker.

A linear layer is a convolution of planes of one position.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from bppsa_cupy.devices import Array, Device, rules
from bppsa_cupy.geometry import Conv2dGeometry
from bppsa_cupy.layers.base import Context
from bppsa_cupy.raw_kernels.gathers import gather_fill
from bppsa_cupy.raw_kernels.sparse_conv2d import sparse_convolve, sparse_weight_gradient


def cost(geometry: Conv2dGeometry, device: str) -> float:
    """The time of a multiply-add by list, in those of one by all weights."""
    return rules.listed_cost(device, math.prod(geometry.out_size))


def of(owner: Hashable, geometry: Conv2dGeometry, mask: np.ndarray) -> KeptWeights:
    """The lists of a layer, which never changes, made once for each geometry."""
    lists = _LISTS.setdefault(owner, {})
    if geometry not in lists:
        lists[geometry] = KeptWeights(geometry, mask)
    return lists[geometry]


@dataclass(frozen=True, eq=False)
class Taps:
    """A list of taps by rows of outputs, as `sparse_convolve` takes it: int32 arrays."""

    indptr: np.ndarray
    channels: np.ndarray
    downs: np.ndarray
    rights: np.ndarray
    which: np.ndarray

    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.indptr, self.channels, self.downs, self.rights, self.which


class KeptWeights:
    """The weights that a mask keeps of a convolution, as lists for the way forward and the way back.

    index    (nnz,) int32, their positions in the flattened weight, ascending
    forward  rows are output channels, taps in the order of `index`
    back     rows are the input channels' phases by stride; a row's taps in the order of output channels, then
             as the kernel lies, turned
    """

    def __init__(self, geometry: Conv2dGeometry, mask: np.ndarray) -> None:
        self.geometry, self.weights = geometry, mask.size
        self.index = np.flatnonzero(mask).astype(np.int32)
        self._uploaded: dict[tuple[Device, str], tuple[Array, ...]] = {}

    def is_quicker(self, device: str) -> bool:
        """Whether a layer goes by these lists, and not by all weights (`rules.LISTED`). The batch does not
        count, so that a sample's results are the same alone and among others."""
        return cost(self.geometry, device) * self.index.size < self.weights

    @cached_property
    def _places(self) -> tuple[np.ndarray, ...]:
        """Of each kept weight its output channel, input channel, row and column of the kernel."""
        g = self.geometry
        channels = g.in_channels // g.groups
        output, inner, row, column = np.unravel_index(self.index, (g.out_channels, channels, *g.kernel_size))
        return output, output // (g.out_channels // g.groups) * channels + inner, row, column

    @cached_property
    def forward(self) -> Taps:
        g = self.geometry
        output, channel, row, column = self._places
        downs, rights = row * g.dilation[0] - g.padding[0], column * g.dilation[1] - g.padding[1]
        return _taps(output, g.out_channels, channel, downs, rights, np.arange(output.size))

    @cached_property
    def back(self) -> Taps:
        g = self.geometry
        output, channel, row, column = self._places
        down, phase_y = _seen_from(row, g.padding[0], g.dilation[0], g.stride[0])
        right, phase_x = _seen_from(column, g.padding[1], g.dilation[1], g.stride[1])
        rows = (channel * g.stride[0] + phase_y) * g.stride[1] + phase_x
        order = np.lexsort((right, down, output, rows))
        found = (array[order] for array in (rows, output, down, right))
        own, outputs, downs, rights = found
        return _taps(own, g.in_channels * g.stride[0] * g.stride[1], outputs, downs, rights, order)

    def on(self, device: Device, way: str) -> tuple[Array, ...]:
        """The arrays of "forward" or "back", or "index", on a device."""
        if (device, way) not in self._uploaded:
            arrays = (self.index,) if way == "index" else getattr(self, way).arrays()
            upload = device.upload_index if way == "index" else device.asarray
            self._uploaded[device, way] = tuple(map(upload, arrays))
        return self._uploaded[device, way]

    # ---- passes ----

    def go(self, ctx: Context, given: Array, result: Array, way: str) -> None:
        """Write the output of a batch, "forward", or "back" the gradient by the input from the one by the
        output."""
        g = self.geometry
        near, far = (g.in_channels, *g.in_size), (g.out_channels, *g.out_size)
        if way == "forward":
            bias, sides = ctx.parameters.get("bias"), (*near, *g.stride, *far, 1, 1)
        else:
            bias, sides = None, (*far, 1, 1, *near, *g.stride)
        ctx.device.launch(
            sparse_convolve, given, self._values(ctx), given[:0] if bias is None else bias,
            *self.on(ctx.device, way), result, given.shape[0], *sides, self.index.size, bias is not None,
        )  # fmt: skip

    def weight_gradient(
        self, ctx: Context, x: Array, gradient: Array, weight: Array, bias: Array | None
    ) -> None:
        """Write the gradients by the kept weights, `weight` (nnz,), and by the bias."""
        g = self.geometry
        ctx.device.launch(
            sparse_weight_gradient, x, gradient, *self.on(ctx.device, "forward")[:4], weight,
            gradient[:0] if bias is None else bias, x.shape[0], g.in_channels, *g.in_size, *g.stride,
            g.out_channels, *g.out_size, self.index.size, bias is not None,
        )  # fmt: skip

    def _values(self, ctx: Context) -> Array:
        """(nnz,) the kept weights' present values."""
        weight = ctx.parameters["weight"]
        if weight.ndim == 1:
            return weight
        kept = ctx.buffer("kept_weights", (self.index.size,))
        (index,) = self.on(ctx.device, "index")
        ctx.device.launch(gather_fill, weight, index, kept, weight.size, kept.size)
        return kept


def _taps(rows: np.ndarray, count: int, *columns: np.ndarray) -> Taps:
    """The list of these columns, which are sorted by rows."""
    indptr = np.searchsorted(rows, np.arange(count + 1))
    return Taps(*(np.ascontiguousarray(array, np.int32) for array in (indptr, *columns)))


def _seen_from(tap: np.ndarray, padding: int, dilation: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Along an axis, which output sees an input by each tap, counted from the input's place in its phase; and
    that phase."""
    phase = (tap * dilation - padding) % stride
    return (phase + padding - tap * dilation) // stride, phase


#: By layer, and by geometry.
_LISTS: MutableMapping[Hashable, dict[Conv2dGeometry, KeptWeights]] = WeakKeyDictionary()

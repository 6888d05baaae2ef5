"""What layers share that are linear in their input: a weight, which a mask may thin out, and a bias; Linear.

A masked weight is absent, in whichever way a layer is computed: by the list of those that are kept, where
a fixed rule takes it, or else by all, masked ones being 0. In the latter case the samples that hold
NaN or infinity, which a product with 0 would spread, go by the list after all. For a list a linear layer is a
convolution of planes of one position.
"""

from __future__ import annotations

import abc
import copy
import hashlib
import math
from collections.abc import Hashable, MutableMapping
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from bppsa_cupy.arguments import as_flag, as_integer, as_plain_array
from bppsa_cupy.devices import Array, Device, rules
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.geometry import Conv2dGeometry
from bppsa_cupy.jacobians.linear import LinearJacobian
from bppsa_cupy.layers.base import Context, Layer, Shape, uniform_fan_in
from bppsa_cupy.raw_kernels.gathers import gather_fill
from bppsa_cupy.raw_kernels.sparse_conv2d import sparse_convolve, sparse_weight_gradient


def as_mask(layer: str, mask: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return `mask` as a read-only bool array of `shape`, or None.

    Raises ShapeError for another shape, or an element that is not a finite number.
    """
    if mask is None:
        return None
    raw = as_plain_array(layer, "mask", mask)
    if raw.shape != shape:
        raise ShapeError(
            f"{layer} got a mask of shape {raw.shape}: pass a mask with the weight's shape {shape}"
        )
    wrong = np.argwhere(~np.isfinite(raw))
    if wrong.size:
        place = tuple(wrong[0].tolist())
        raise ShapeError(
            f"{layer} got a mask with the value {raw[place]} at {place}: pass 0 or 1 for each weight"
        )
    array = np.array(raw, dtype=bool)
    array.flags.writeable = False
    return array


def as_bits(device: Device, mask: np.ndarray, dtype: np.dtype) -> Array:
    """Return a mask as integers as wide as the dtype, with all bits set where a value is kept.

    `hold` is then a single operation, and NaN does not pass.
    """
    bits = np.dtype(f"u{dtype.itemsize}")
    return device.asarray(np.where(mask, bits.type(np.iinfo(bits).max), bits.type(0)))


def hold(values: Array, bits: Array) -> None:
    """Set pruned values to 0, in place."""
    masked = values.view(bits.dtype)
    masked &= bits


class Weighted(Layer):
    """Base class of layers with a weight (outputs, ...) and a bias (outputs,).

    Attributes
    ----------
    bias : bool
        Whether the layer has a bias.
    mask : array of bool or None
        A read-only array with the shape of the weight. Weights with mask False stay 0, and the pattern of the
        Jacobian leaves them out.
    """

    backward_reads = ("input",)
    bias: bool
    mask: np.ndarray | None

    @property
    @abc.abstractmethod
    def weight_shape(self) -> Shape:
        """The shape of the weight, (outputs, ...)."""

    @abc.abstractmethod
    def geometry(self, input_shape: Shape) -> Conv2dGeometry:
        """Return the geometry of the convolution that computes the layer for an input shape.

        One input of the layer may contain several samples of this convolution (see `samples`).
        """

    def samples(self, array: Array) -> Array:
        """Return `array`, an input or output, as (samples, channels, height, width) of `geometry`."""
        return array

    @abc.abstractmethod
    def dense_forward(self, ctx: Context, x: Array, y: Array) -> None:
        """Compute the output from the input `x` with the dense weight, and write it to `y`."""

    @abc.abstractmethod
    def dense_vjp(self, ctx: Context, gradient: Array, result: Array) -> None:
        """Write the gradient with respect to the input, computed with the dense weight, to `result`.

        `gradient` is the gradient with respect to the output.
        """

    @abc.abstractmethod
    def dense_parameter_gradients(self, ctx: Context, gradient: Array) -> None:
        """Write the gradients with respect to the dense weight and the bias to `ctx.gradients`.

        `gradient` is the gradient with respect to the output.
        """

    def describe(self, input_shape: Shape) -> dict[str, Any]:
        digest = None if self.mask is None else hashlib.sha256(np.packbits(self.mask).tobytes()).hexdigest()
        return super().describe(input_shape) | ({} if digest is None else {"weight_mask": digest})

    def vjp_multiply_adds(self, input_shape: Shape) -> int:
        """Multiply-adds of the dense product, padding included, or the equivalent for a list of weights."""
        geometry = self.geometry(input_shape)
        samples = math.prod(input_shape) // (geometry.in_channels * math.prod(geometry.in_size))
        weights, lists = math.prod(self.weight_shape), self.lists(input_shape)
        if lists is not None and lists.is_quicker("host"):
            weights = math.ceil(listed_cost(geometry, "host") * lists.index.size)
        return samples * weights * math.prod(geometry.out_size)

    def forward(self, ctx: Context, x: Array) -> Array:
        y = ctx.buffer("output", (x.shape[0], *self.output_shape(x.shape[1:])))
        self._pass(ctx, x, y, "forward")
        ctx.saved.update(input=x, output=y)
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        result = ctx.buffer("input_gradient", ctx.saved["input"].shape)
        self._pass(ctx, gradient, result, "back")
        return result

    def _pass(self, ctx: Context, source: Array, result: Array, way: str) -> None:
        """Write the output, or the gradient with respect to the input, with kept weights or with all."""
        by_all = self.dense_forward if way == "forward" else self.dense_vjp
        if self.mask is None:
            ctx.repeat(way, (source, result, *ctx.parameters.values()), partial(by_all, ctx, source, result))
            return
        lists, device = self.lists(ctx.input_shape), ctx.device
        assert lists is not None
        bias = ctx.parameters.get("bias") if way == "forward" else None

        def by_list(array: Array, result: Array) -> None:
            device.launch(*lists.convolve(device, array, lists.values(ctx), bias, result, way))

        if lists.is_quicker(device.name):
            by_list(self.samples(source), self.samples(result))
        else:
            with np.errstate(invalid="ignore"):
                by_all(ctx, source, result)
            samples, results = self.samples(source), self.samples(result)
            finite = device.xp.isfinite(samples).all(axis=(1, 2, 3))
            if not device.to_host(finite.all(keepdims=True))[0]:
                other = device.empty((int((~finite).sum()), *results.shape[1:]), ctx.dtype)
                by_list(device.xp.ascontiguousarray(samples[~finite]), other)
                results[~finite] = other

    def parameter_gradients(self, ctx: Context, gradient: Array) -> None:
        if self.mask is None:
            arrays = gradient, ctx.saved["input"], *ctx.gradients.values()
            ctx.repeat("by weights", arrays, partial(self.dense_parameter_gradients, ctx, gradient))
            return
        lists = self.lists(ctx.input_shape)
        assert lists is not None
        if not lists.is_quicker(ctx.device.name):
            with np.errstate(invalid="ignore"):
                self.dense_parameter_gradients(ctx, gradient)
            hold(ctx.gradients["weight"].reshape(-1), lists.bits(ctx.device, ctx.dtype))
            return
        x, weight = ctx.saved["input"], ctx.gradients["weight"]
        listed = weight if weight.ndim == 1 else ctx.buffer("kept_gradient", (lists.index.size,))
        arrays = self.samples(x), self.samples(gradient), listed, ctx.gradients.get("bias")
        ctx.device.launch(*lists.find_weight_gradient(ctx.device, *arrays))
        if listed is not weight:
            weight[...] = 0
            weight.reshape(-1)[lists.on(ctx.device, "index")[0]] = listed

    def lists(self, input_shape: Shape) -> KeptWeights | None:
        """Return the lists of kept weights for an input shape, or None without a mask."""
        if self.mask is None:
            return None
        lists, geometry = _LISTS.setdefault(self, {}), self.geometry(input_shape)
        if geometry not in lists:
            lists[geometry] = KeptWeights(geometry, self.mask)
        return lists[geometry]

    def parameter_shapes(self) -> dict[str, Shape]:
        weight = self.weight_shape
        return {"weight": weight, "bias": weight[:1]} if self.bias else {"weight": weight}

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        fan_in = math.prod(self.weight_shape[1:])
        shapes = self.parameter_shapes()
        arrays = {name: uniform_fan_in(generator, shape, fan_in) for name, shape in shapes.items()}
        if self.mask is not None:
            arrays["weight"][~self.mask] = 0
        return arrays

    def with_mask(self, mask: Any) -> Weighted:
        """Return a copy with another mask of the weight; None means dense. Raises ShapeError."""
        result = copy.copy(self)
        result.mask = as_mask(repr(self), mask, self.weight_shape)
        return result


class Linear(Weighted):
    """Linear map of the last axis: y = x Wᵀ + b.

    Parameters
    ----------
    in_features, out_features : int
        Sizes of the last axis of x and y.
    bias : bool, default: True
        Whether to add b.
    mask : array, optional
        Zeros and ones in the shape of the weight. Weights with mask 0 stay 0 and are left out of the
        Jacobian's pattern.

    Raises
    ------
    ShapeError
        If a size or the mask is invalid, or an input does not fit.
    ArgumentError
        If `bias` is not a bool.

    Notes
    -----
    Parameters: weight (out_features, in_features) and bias (out_features,).

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.Linear(4, 3).output_shape((7, 4))
    (7, 3)
    >>> bp.Linear(2, 2, mask=[[1, 0], [0, 1]]).jacobian((2,)).pattern.nnz
    2
    """

    arguments = ("in_features", "out_features", "bias")

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, mask: Any = None) -> None:
        self.in_features = as_integer("Linear", "in_features", in_features, 1)
        self.out_features = as_integer("Linear", "out_features", out_features, 1)
        self.bias = as_flag("Linear", "bias", bias)
        self.mask = as_mask("Linear", mask, self.weight_shape)

    def output_shape(self, input_shape: Shape) -> Shape:
        if not input_shape or input_shape[-1] != self.in_features:
            raise ShapeError(
                f"Linear({self.in_features}, {self.out_features}) got input {input_shape}: the last size of "
                f"the input must be {self.in_features}"
            )
        return (*input_shape[:-1], self.out_features)

    @property
    def weight_shape(self) -> Shape:
        return (self.out_features, self.in_features)

    def jacobian(self, input_shape: Shape) -> LinearJacobian:
        return LinearJacobian(self.in_features, self.out_features, math.prod(input_shape[:-1]), self.mask)

    def geometry(self, input_shape: Shape) -> Conv2dGeometry:
        return Conv2dGeometry(self.in_features, (1, 1), self.out_features, (1, 1))

    def samples(self, array: Array) -> Array:
        return array.reshape(-1, array.shape[-1], 1, 1)

    def dense_forward(self, ctx: Context, x: Array, y: Array) -> None:
        ctx.device.multiply(x, ctx.parameters["weight"].T, y)
        if self.bias:
            y += ctx.parameters["bias"]

    def dense_vjp(self, ctx: Context, gradient: Array, result: Array) -> None:
        ctx.device.multiply(gradient, ctx.parameters["weight"], result)

    def dense_parameter_gradients(self, ctx: Context, gradient: Array) -> None:
        rows = gradient.reshape(-1, self.out_features)
        x = ctx.saved["input"].reshape(-1, self.in_features)
        ctx.device.multiply(rows.T, x, ctx.gradients["weight"])
        if self.bias:
            rows.sum(axis=0, out=ctx.gradients["bias"])


def listed_cost(geometry: Conv2dGeometry, device: str) -> float:
    """The time of a multiply-add by list, in those of one by all weights."""
    return rules.listed_cost(device, math.prod(geometry.out_size))


#: Weights by rows of outputs, as `sparse_convolve` reads them, int32: where each row begins, then of each
#: weight its channel, shifts down and right, and its position among the kept ones.
Taps = tuple[np.ndarray, ...]


class KeptWeights:
    """The kept weights of a masked convolution, as lists for the forward and the backward pass.

    Attributes
    ----------
    index : array of int32, (nnz,)
        Positions in the flattened weight, ascending.
    forward : Taps
        Rows are output channels, weights in the order of `index`.
    back : Taps
        Rows are phases of input channels by stride.
    """

    def __init__(self, geometry: Conv2dGeometry, mask: np.ndarray) -> None:
        self.geometry, self.weights = geometry, mask.size
        self.index = np.flatnonzero(mask).astype(np.int32)
        self._uploaded: dict[tuple[Device, str], tuple[Array, ...]] = {}

    def is_quicker(self, device: str) -> bool:
        """Whether a layer uses these lists instead of all weights, whatever the batch size."""
        return listed_cost(self.geometry, device) * self.index.size < self.weights

    def pays(self, device: str, samples: int) -> bool:
        """Whether these lists are quicker for so many samples, if their launches have a fixed cost and all
        weights have to be masked."""
        saved = self.weights - listed_cost(self.geometry, device) * self.index.size
        positions = samples * math.prod(self.geometry.out_size)
        return positions * saved + rules.MASKING * self.weights > rules.LISTED_CALL

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
        sorted_arrays = (array[order] for array in (rows, output, down, right))
        sources, outputs, downs, rights = sorted_arrays
        return _taps(sources, g.in_channels * g.stride[0] * g.stride[1], outputs, downs, rights, order)

    def on(self, device: Device, way: str) -> tuple[Array, ...]:
        """The arrays of "forward", "back" or "index" on a device."""
        if (device, way) not in self._uploaded:
            arrays = (self.index,) if way == "index" else getattr(self, way)
            upload = device.upload_index if way == "index" else device.asarray
            self._uploaded[device, way] = tuple(map(upload, arrays))
        return self._uploaded[device, way]

    def bits(self, device: Device, dtype: np.dtype) -> Array:
        """Return the flattened mask as `as_bits` returns it."""
        key = device, dtype.name
        if key not in self._uploaded:
            mask = np.zeros(self.weights, bool)
            mask[self.index] = True
            self._uploaded[key] = (as_bits(device, mask, dtype),)
        return self._uploaded[key][0]

    # ---- passes: a kernel and its arguments ----

    def convolve(
        self, device: Device, array: Array, values: Array, bias: Array | None, result: Array, way: str
    ) -> tuple[Any, ...]:
        """Write the output of a batch ("forward") or the gradient with respect to the input ("back")."""
        g = self.geometry
        near, far = (g.in_channels, *g.in_size), (g.out_channels, *g.out_size)
        sides = (*near, *g.stride, *far, 1, 1) if way == "forward" else (*far, 1, 1, *near, *g.stride)
        return (
            sparse_convolve, array, values, array[:0] if bias is None else bias, *self.on(device, way),
            result, array.shape[0], *sides, self.index.size, bias is not None,
        )  # fmt: skip

    def find_weight_gradient(
        self, device: Device, x: Array, gradient: Array, weight: Array, bias: Array | None
    ) -> tuple[Any, ...]:
        """Write the gradients with respect to the kept weights, `weight` (nnz,), and the bias."""
        g = self.geometry
        return (
            sparse_weight_gradient, x, gradient, *self.on(device, "forward")[:4], weight,
            gradient[:0] if bias is None else bias, x.shape[0], g.in_channels, *g.in_size, *g.stride,
            g.out_channels, *g.out_size, self.index.size, bias is not None,
        )  # fmt: skip

    def values(self, ctx: Context) -> Array:
        """(nnz,) the kept weights' present values."""
        weight = ctx.parameters["weight"]
        if weight.ndim == 1:
            return weight
        values = ctx.buffer("kept_weights", (self.index.size,))
        (index,) = self.on(ctx.device, "index")
        ctx.device.launch(gather_fill, weight, index, values, weight.size, values.size)
        return values


def _taps(rows: np.ndarray, count: int, *columns: np.ndarray) -> Taps:
    """The list of these columns, which are sorted by rows."""
    indptr = np.searchsorted(rows, np.arange(count + 1))
    return tuple(np.ascontiguousarray(array, np.int32) for array in (indptr, *columns))


def _seen_from(tap: np.ndarray, padding: int, dilation: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Along an axis, which output sees an input by each tap, counted from the input's place in its phase; and
    that phase."""
    phase = (tap * dilation - padding) % stride
    return (phase + padding - tap * dilation) // stride, phase


#: By layer, and by geometry.
_LISTS: MutableMapping[Hashable, dict[Conv2dGeometry, KeptWeights]] = WeakKeyDictionary()

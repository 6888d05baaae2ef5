"""What layers share that are linear in their input: a weight, which a mask may thin out, and a bias.

A masked weight is absent, in whichever way a layer is computed: by the list of those that are kept, where
a fixed rule takes it, or else by all, masked ones being 0. In the latter case the samples that hold
NaN or infinity, which a product with 0 would spread, go by the list after all.
"""

from __future__ import annotations

import abc
import copy
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.geometry import Conv2dGeometry
from bppsa_cupy.layers import kept_weights
from bppsa_cupy.layers.arguments import as_mask, hold
from bppsa_cupy.layers.base import Context, Layer, Shape, uniform_fan_in
from bppsa_cupy.layers.kept_weights import KeptWeights


class Weighted(Layer):
    """A layer with a `weight` whose first axis is the outputs', and a `bias` (outputs,).

    bias  whether it has one
    mask  bool, read-only, of the weight's shape: weights where it is False are 0 and stay 0, and are left
          out of the Jacobian's pattern; None keeps all
    """

    backward_reads = ("input",)
    bias: bool
    mask: np.ndarray | None

    @property
    @abc.abstractmethod
    def weight_shape(self) -> Shape:
        """The weight's shape, (outputs, ...); one output sums over the rest."""

    @abc.abstractmethod
    def convolution(self, input_shape: Shape) -> Conv2dGeometry:
        """The layer as a convolution of samples, of which an input of this shape may be several."""

    def samples(self, array: Array) -> Array:
        """An input, an output or the gradient by one as that convolution has it: (samples, channels, height,
        width)."""
        return array

    @abc.abstractmethod
    def dense_forward(self, ctx: Context, x: Array, y: Array) -> None:
        """Write the output `y` of `x` by all weights."""

    @abc.abstractmethod
    def dense_vjp(self, ctx: Context, gradient: Array, result: Array) -> None:
        """Write the gradient by the input, `result`, from the one by the output, by all weights."""

    @abc.abstractmethod
    def dense_parameter_gradients(self, ctx: Context, gradient: Array) -> None:
        """Write the gradients by all weights, and by the bias."""

    def kept(self, input_shape: Shape, device: str) -> dict[str, np.ndarray]:
        kept = self._lists(input_shape)
        return {"weight": kept.index} if kept is not None and kept.is_quicker(device) else {}

    def vjp_multiply_adds(self, input_shape: Shape) -> int:
        """Those of a dense product, padding included, or as many as take the time of one by list."""
        geometry = self.convolution(input_shape)
        samples = math.prod(input_shape) // (geometry.in_channels * math.prod(geometry.in_size))
        weights, kept = math.prod(self.weight_shape), self._lists(input_shape)
        if kept is not None and kept.is_quicker("host"):
            weights = math.ceil(kept_weights.cost(geometry, "host") * kept.index.size)
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

    def _pass(self, ctx: Context, given: Array, result: Array, way: str) -> None:
        """Write the output, or the gradient by the input, by kept weights or by all."""
        kept, by_all = (
            self._lists(ctx.input_shape),
            self.dense_forward if way == "forward" else self.dense_vjp,
        )
        if kept is None:
            ctx.repeat(way, (given, result, *ctx.parameters.values()), partial(by_all, ctx, given, result))
        elif kept.is_quicker(ctx.device.name):
            kept.go(ctx, self.samples(given), self.samples(result), way)
        else:
            with np.errstate(invalid="ignore"):
                by_all(ctx, given, result)
            samples, found = self.samples(given), self.samples(result)
            finite = ctx.device.xp.isfinite(samples).all(axis=(1, 2, 3))
            if not finite.all():
                other = ctx.device.empty((int((~finite).sum()), *found.shape[1:]), ctx.dtype)
                kept.go(ctx, ctx.device.xp.ascontiguousarray(samples[~finite]), other, way)
                found[~finite] = other

    def waits(self, ctx: Context) -> bool:
        """Whether the host waits for whether a sample is finite: where a mask is there and the layer goes by
        all weights."""
        kept = self._lists(ctx.input_shape)
        return kept is not None and not kept.is_quicker(ctx.device.name)

    def parameter_gradients(self, ctx: Context, gradient: Array) -> None:
        kept = self._lists(ctx.input_shape)
        if kept is None:
            arrays = gradient, ctx.saved["input"], *ctx.gradients.values()
            ctx.repeat("by weights", arrays, partial(self.dense_parameter_gradients, ctx, gradient))
            return
        if not kept.is_quicker(ctx.device.name):
            with np.errstate(invalid="ignore"):
                self.dense_parameter_gradients(ctx, gradient)
            hold(ctx.gradients["weight"], ctx.masks["weight"])
            return
        x, weight = ctx.saved["input"], ctx.gradients["weight"]
        own = weight if weight.ndim == 1 else ctx.buffer("kept_gradient", (kept.index.size,))
        kept.weight_gradient(ctx, self.samples(x), self.samples(gradient), own, ctx.gradients.get("bias"))
        if own is not weight:
            weight[...] = 0
            weight.reshape(-1)[kept.on(ctx.device, "index")[0]] = own

    def _lists(self, input_shape: Shape) -> KeptWeights | None:
        """The lists of the weights that are kept; None without a mask."""
        if self.mask is None:
            return None
        return kept_weights.of(self, self.convolution(input_shape), self.mask)

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

    def masks(self) -> dict[str, np.ndarray]:
        return {} if self.mask is None else {"weight": self.mask}

    def maskable(self) -> tuple[str, ...]:
        return ("weight",)

    def with_masks(self, masks: Mapping[str, Any]) -> Weighted:
        result = copy.copy(self)
        result.mask = as_mask(repr(self), masks.get("weight"), self.weight_shape)
        return result

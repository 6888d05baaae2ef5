"""CausalConv1d."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bppsa_cupy.arguments import as_flag, as_integer
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.jacobians.causal_conv1d import CausalConv1dJacobian
from bppsa_cupy.layers.base import Context, Layer, Shape, uniform_fan_in


class CausalConv1d(Layer):
    """A depthwise convolution over the steps of sequences (T, channels) that sees the present step and those
    before it: y_t = b + the sum over k < kernel_size of w[K - 1 - k] x_{t-k}, with zeros before the first
    step.

    It is torch.nn.Conv1d(channels, channels, kernel_size, groups=channels, padding=kernel_size - 1) over
    (channels, T), of which the first T outputs are taken: weight (channels, 1, kernel_size), bias
    (channels,). Griffin has one before its `RGLRU`.
    """

    arguments = ("channels", "kernel_size", "bias")
    backward_reads = ("input",)

    def __init__(self, channels: int, kernel_size: int = 4, bias: bool = True) -> None:
        self.channels = as_integer("CausalConv1d", "channels", channels, 1)
        self.kernel_size = as_integer("CausalConv1d", "kernel_size", kernel_size, 1)
        self.bias = as_flag("CausalConv1d", "bias", bias)

    @property
    def steps_alone(self) -> bool:
        return self.kernel_size == 1

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 2 or input_shape[1] != self.channels:
            raise ShapeError(
                f"CausalConv1d({self.channels}) got input {input_shape}: it takes sequences "
                f"(T, {self.channels})"
            )
        return input_shape

    def parameter_shapes(self) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {"weight": (self.channels, 1, self.kernel_size)}
        return {**shapes, "bias": (self.channels,)} if self.bias else shapes

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        shapes = self.parameter_shapes()
        return {name: uniform_fan_in(generator, shape, self.kernel_size) for name, shape in shapes.items()}

    def jacobian(self, input_shape: Shape) -> CausalConv1dJacobian:
        return CausalConv1dJacobian(input_shape[0], self.channels, self.kernel_size)

    def _taps(self, ctx: Context, steps: int) -> Iterator[tuple[int, Array]]:
        """How many steps back each weight looks, and the weight (channels,), from the present step on."""
        weight = ctx.parameters["weight"]
        for back in range(min(self.kernel_size, steps)):
            yield back, weight[:, 0, self.kernel_size - 1 - back]

    def forward(self, ctx: Context, x: Array) -> Array:
        y, steps = ctx.buffer("output", x.shape), x.shape[1]
        y[...] = ctx.parameters["bias"] if self.bias else 0
        for back, weight in self._taps(ctx, steps):
            y[:, back:] += x[:, : steps - back] * weight
        ctx.saved.update(input=x, output=y)
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        result, steps = ctx.buffer("input_gradient", gradient.shape), gradient.shape[1]
        result[...] = 0
        for back, weight in self._taps(ctx, steps):
            result[:, : steps - back] += gradient[:, back:] * weight
        return result

    def parameter_gradients(self, ctx: Context, gradient: Array) -> None:
        x, by_weight, steps = ctx.saved["input"], ctx.gradients["weight"], gradient.shape[1]
        by_weight[...] = 0
        for back, _ in self._taps(ctx, steps):
            products = gradient[:, back:] * x[:, : steps - back]
            by_weight[:, 0, self.kernel_size - 1 - back] = products.sum(axis=(0, 1))
        if self.bias:
            ctx.gradients["bias"][...] = gradient.sum(axis=(0, 1))

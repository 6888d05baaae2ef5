"""What layers share that normalise each channel: (x - mean) / sqrt(variance + eps), times γ, plus β."""

from __future__ import annotations

import math
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.jacobians.diagonal import BatchNormJacobian
from bppsa_cupy.layers.base import Context, Layer, Shape
from bppsa_cupy.raw_kernels.norms import batch_norm_forward, batch_norm_vjp


class Normalization(Layer):
    """A layer over (channels, ...) whose mean and variance are a channel's.

    A pass keeps `mean` and `inverse_std`, (channels,), 1 / sqrt(variance + eps), and `scale`, γ times that.
    By fixed statistics the layer is linear in its input, with a diagonal Jacobian of shared values.
    """

    num_features: int
    eps: float

    def output_shape(self, input_shape: Shape) -> Shape:
        self.check_shape(input_shape)
        return input_shape

    def check_shape(self, input_shape: Shape) -> None:
        """Raise ShapeError unless the layer takes this input."""
        raise NotImplementedError

    def jacobian(self, input_shape: Shape) -> BatchNormJacobian:
        """That by fixed statistics."""
        return BatchNormJacobian(input_shape[0], math.prod(input_shape[1:]))

    def vjp_multiply_adds(self, input_shape: Shape) -> int:
        return math.prod(input_shape)

    def fix(self, ctx: Context, mean: Array, variance: Array) -> None:
        """Take these statistics, (channels,), for the pass; copies."""
        xp = ctx.device.xp
        center, inverse = self._kept(ctx, "mean"), self._kept(ctx, "inverse_std")
        center[...] = mean
        xp.add(variance, self.eps, out=inverse)
        xp.sqrt(inverse, out=inverse)
        xp.divide(1, inverse, out=inverse)
        ctx.saved.update(mean=center, inverse_std=inverse)

    def normalize(self, ctx: Context, x: Array, affine: tuple[Array, Array] | None) -> Array:
        """The output by the pass's statistics; `affine` is (γ, β), each (channels,), or None for 1 and 0."""
        y, scale = ctx.buffer("output", x.shape), self._kept(ctx, "scale")
        mean, inverse = ctx.saved["mean"], ctx.saved["inverse_std"]
        scale[...] = inverse if affine is None else inverse * affine[0]
        weight, bias = affine or (mean[:0], mean[:0])
        ctx.device.launch(
            batch_norm_forward, x, mean, inverse, weight, bias, y, *sizes(x), affine is not None
        )
        ctx.saved.update(input=x, output=y, scale=scale)
        return y

    def through_input(
        self, ctx: Context, gradient: Array, weight: Array | None, sums: tuple[Array, Array] | None
    ) -> Array:
        """The gradient by the input. `sums` are, where the statistics are those of the batch, the channels'
        sums of the gradient times the normalised input, and of the gradient."""
        result = ctx.buffer("input_gradient", gradient.shape)
        x, mean, inverse = (ctx.saved[name] for name in ("input", "mean", "inverse_std"))
        none = mean[:0]
        by_weight, by_bias = sums or (none, none)
        ctx.device.launch(
            batch_norm_vjp, x, gradient, mean, inverse, none if weight is None else weight, by_weight,
            by_bias, result, *sizes(x), weight is not None, sums is not None,
        )  # fmt: skip
        return result

    def _kept(self, ctx: Context, name: str) -> Array:
        return ctx.buffer(name, (self.num_features,))


def sizes(x: Any) -> tuple[int, int, int]:
    """Batch, channels and positions of (B, channels, ...)."""
    return x.shape[0], x.shape[1], math.prod(x.shape[2:])

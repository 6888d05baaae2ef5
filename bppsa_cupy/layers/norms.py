"""Batch normalisation: BatchNorm1d and BatchNorm2d."""

from __future__ import annotations

import abc
import math
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_flag, as_integer, as_positive, as_probability
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.jacobians.diagonal import BatchNormJacobian
from bppsa_cupy.layers.base import Context, Layer, Shape, check_images
from bppsa_cupy.raw_kernels.norms import (
    batch_norm_forward,
    batch_norm_statistics,
    batch_norm_vjp,
    batch_norm_weight_gradient,
)


def sizes(x: Any) -> tuple[int, int, int]:
    """Batch, channels and positions of (B, channels, ...)."""
    return x.shape[0], x.shape[1], math.prod(x.shape[2:])


class BatchNorm(Layer):
    """Base class of batch normalization of channels.

    Parameters
    ----------
    num_features : int
        Number of channels.
    eps : float, default: 1e-5
        Value that is added to the variance.
    momentum : float or None, default: 0.1
        Weight of a new batch in the running statistics. None averages over all batches with equal weights.
    affine : bool, default: True
        Whether to learn weight γ and bias β.
    track_running_stats : bool, default: True
        Whether to keep running statistics for evaluation mode.

    Raises
    ------
    ShapeError
        If `num_features` is not a positive integer, or a batch has only one value per channel to normalize.
    ArgumentError
        If another argument is invalid.

    Notes
    -----
    Arguments, buffers and updates are those of PyTorch. Parameters: weight and bias (num_features,). Buffers:
    running_mean and running_var (num_features,), num_batches_tracked ().

    Training mode uses the statistics of the batch. The transposed Jacobian of a channel with N values is
    γ/σ (I - 11ᵀ/N - x̂x̂ᵀ/N). It couples the samples, so a scan stops at the layer. In evaluation mode with
    running statistics the Jacobian is diagonal.
    """

    arguments = ("num_features", "eps", "momentum", "affine", "track_running_stats")
    backward_reads = ("input",)

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        kind = type(self).__name__
        self.num_features = as_integer(kind, "num_features", num_features, 1)
        self.name = f"{kind}({self.num_features})"
        self.eps = as_positive(self.name, "eps", eps)
        self.momentum = None if momentum is None else as_probability(self.name, "momentum", momentum)
        self.affine = as_flag(self.name, "affine", affine)
        self.track_running_stats = as_flag(self.name, "track_running_stats", track_running_stats)

    @abc.abstractmethod
    def check_shape(self, input_shape: Shape) -> None:
        """Raise ShapeError unless the layer accepts this input."""

    def output_shape(self, input_shape: Shape) -> Shape:
        self.check_shape(input_shape)
        return input_shape

    def jacobian(self, input_shape: Shape) -> BatchNormJacobian:
        """The Jacobian for fixed statistics."""
        return BatchNormJacobian(input_shape[0], math.prod(input_shape[1:]))

    def vjp_multiply_adds(self, input_shape: Shape) -> int:
        return math.prod(input_shape)

    def is_barrier(self, training: bool) -> bool:
        return training or not self.track_running_stats

    def parameter_shapes(self) -> dict[str, Shape]:
        shape = (self.num_features,)
        return {"weight": shape, "bias": shape} if self.affine else {}

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        values = {"weight": np.ones(self.num_features), "bias": np.zeros(self.num_features)}
        return values if self.affine else {}

    def initial_buffers(self) -> dict[str, np.ndarray]:
        if not self.track_running_stats:
            return {}
        return {
            "running_mean": np.zeros(self.num_features),
            "running_var": np.ones(self.num_features),
            "num_batches_tracked": np.zeros((), np.int64),
        }

    def forward(self, ctx: Context, x: Array) -> Array:
        coupled, buffers = self.is_barrier(ctx.training), ctx.module_buffers
        mean, inverse, scale = (self._per_channel(ctx, name) for name in ("mean", "inverse_std", "scale"))
        if coupled and x.size == self.num_features:
            raise ShapeError(
                f"{self.name} got input of shape {tuple(x.shape)}, which has only one value per channel: "
                "use a larger batch, or evaluation mode with running statistics"
            )
        if coupled:
            # Fill in the batch's statistics, and let the running ones follow them.
            tracked = ctx.training and self.track_running_stats
            count = ctx.buffer("uncounted", (0,), np.int64)
            if tracked:
                count = buffers["num_batches_tracked"].reshape(1)
                count += 1
            following = [buffers[name] if tracked else mean[:0] for name in ("running_mean", "running_var")]
            ctx.device.launch(
                batch_norm_statistics, x, count, mean, inverse, *following, *sizes(x), tracked,
                self.eps, -1.0 if self.momentum is None else self.momentum,
            )  # fmt: skip
        else:
            mean[...] = buffers["running_mean"]
            inverse[...] = 1 / ctx.device.xp.sqrt(buffers["running_var"] + self.eps)
        y, (weight, bias) = ctx.buffer("output", x.shape), self._affine(ctx, mean)
        scale[...] = inverse * weight if self.affine else inverse
        ctx.device.launch(batch_norm_forward, x, mean, inverse, weight, bias, y, *sizes(x), self.affine)
        ctx.saved.update(input=x, output=y, mean=mean, inverse_std=inverse, scale=scale, coupled=coupled)
        return y

    def _affine(self, ctx: Context, like: Array) -> tuple[Array, Array]:
        """γ and β, or nothing."""
        return (ctx.parameters["weight"], ctx.parameters["bias"]) if self.affine else (like[:0], like[:0])

    def _per_channel(self, ctx: Context, name: str) -> Array:
        return ctx.buffer(name, (self.num_features,))

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        scratch = self._per_channel(ctx, "products"), self._per_channel(ctx, "sums")
        return self._vjp(ctx, gradient, self._sums(ctx, gradient, scratch) if ctx.saved["coupled"] else None)

    def _vjp(self, ctx: Context, gradient: Array, sums: tuple[Array, Array] | None) -> Array:
        """The gradient with respect to the input. `sums` are, where the statistics are the batch's, the
        channels' sums of the gradient times the normalised input, and of the gradient."""
        result, x, mean = ctx.buffer("input_gradient", gradient.shape), ctx.saved["input"], ctx.saved["mean"]
        by_weight, by_bias = sums or (mean[:0], mean[:0])
        ctx.device.launch(
            batch_norm_vjp, x, gradient, mean, ctx.saved["inverse_std"], self._affine(ctx, mean)[0],
            by_weight, by_bias, result, *sizes(x), self.affine, sums is not None,
        )  # fmt: skip
        return result

    def parameter_gradients(self, ctx: Context, gradient: Array) -> None:
        if self.affine:
            self._sums(ctx, gradient, (ctx.gradients["weight"], ctx.gradients["bias"]))

    def backward(self, ctx: Context, gradient: Array, want_input: bool) -> Array | None:
        if not self.affine or not ctx.saved["coupled"]:
            return super().backward(ctx, gradient, want_input)
        sums = self._sums(ctx, gradient, (ctx.gradients["weight"], ctx.gradients["bias"]))
        return self._vjp(ctx, gradient, sums) if want_input else None

    def _sums(self, ctx: Context, gradient: Array, into: tuple[Array, Array]) -> tuple[Array, Array]:
        """The channels' sums that are the gradients with respect to γ and β."""
        x, mean, inverse = (ctx.saved[name] for name in ("input", "mean", "inverse_std"))
        ctx.device.launch(batch_norm_weight_gradient, x, gradient, mean, inverse, *into, *sizes(x))
        return into


class BatchNorm1d(BatchNorm):
    """Batch normalization of samples (num_features,) or (num_features, L), over the batch and L.

    Parameters
    ----------
    num_features : int
        Number of channels.
    eps : float, default: 1e-5
        Value that is added to the variance.
    momentum : float or None, default: 0.1
        Weight of a new batch in the running statistics. None averages over all batches with equal weights.
    affine : bool, default: True
        Whether to learn weight and bias, (num_features,) each.
    track_running_stats : bool, default: True
        Whether to keep running statistics for evaluation mode. False uses batch statistics in both modes.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.BatchNorm1d(1)], (1,), dtype="float64", device="host")
    >>> net.forward([[1], [3]]).round(3).tolist()
    [[-1.0], [1.0]]
    >>> net.buffers["0.running_mean"].round(3).tolist()
    [0.2]
    """

    def check_shape(self, input_shape: Shape) -> None:
        if len(input_shape) not in (1, 2) or input_shape[0] != self.num_features or None in input_shape:
            raise ShapeError(
                f"{self.name} got input {input_shape}: pass ({self.num_features},) or "
                f"({self.num_features}, L)"
            )


class BatchNorm2d(BatchNorm):
    """Batch normalization of images (num_features, height, width) over batch, height and width.

    Parameters
    ----------
    num_features, eps, momentum, affine, track_running_stats
        Arguments and defaults are those of `BatchNorm1d`, and of torch.nn.BatchNorm2d. `num_features` is the
        number of channels.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> layer = bp.BatchNorm2d(3)
    >>> (*layer.parameter_shapes(), *layer.initial_buffers())
    ('weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked')
    >>> layer.is_barrier(training=True), layer.is_barrier(training=False)
    (True, False)
    """

    def check_shape(self, input_shape: Shape) -> None:
        check_images(self.name, input_shape, self.num_features)

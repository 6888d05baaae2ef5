"""BatchNorm1d and BatchNorm2d (Ioffe and Szegedy 2015)."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_flag, as_integer, as_positive, as_probability
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.arguments import check_images
from bppsa_cupy.layers.base import Context, Shape
from bppsa_cupy.layers.normalization import Normalization, sizes
from bppsa_cupy.raw_kernels.norms import batch_norm_statistics, batch_norm_weight_gradient


class BatchNorm(Normalization, abc.ABC):
    """Normalises each channel over batch and positions; arguments, buffers and their updates are PyTorch's.

    weight γ, bias β (num_features,), where `affine`. Buffers, where `track_running_stats`: running_mean,
    running_var (num_features,), num_batches_tracked ().

    In training mode the statistics are the batch's, the variance divided by N, the values a channel; the
    running ones move towards them by `momentum`, the variance divided by N - 1 there, or are their means over
    all batches where momentum is None. The transposed Jacobian, γ/σ·(I - 11ᵀ/N - x̂x̂ᵀ/N) a channel, couples
    the samples, and so the layer is a barrier, crossed by its VJP. In evaluation mode the statistics are the
    running ones and the layer is a diagonal element of the scan; without them it is as in training.

    Raises ShapeError for arguments that do not fit, and for a batch of one value a channel that is to be
    normalised by its own statistics.
    """

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

    def config(self) -> dict[str, Any]:
        return {
            "num_features": self.num_features,
            "eps": self.eps,
            "momentum": self.momentum,
            "affine": self.affine,
            "track_running_stats": self.track_running_stats,
        }

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
        coupled = self.is_barrier(ctx.training)
        if not coupled:
            self.fix(ctx, ctx.module_buffers["running_mean"], ctx.module_buffers["running_var"])
        elif _count(ctx, x) == 1:
            raise ShapeError(
                f"{self.name} got input of shape {tuple(x.shape)}, one value a channel: it takes more than "
                "one where it normalises by the batch's own statistics, as in training"
            )
        else:
            self._take_statistics(ctx, x)
        ctx.saved["coupled"] = coupled
        parameters = ctx.parameters
        return self.normalize(ctx, x, (parameters["weight"], parameters["bias"]) if self.affine else None)

    def _take_statistics(self, ctx: Context, x: Array) -> None:
        """Take the batch's statistics for the pass, and let the running ones follow them."""
        mean, inverse = self._kept(ctx, "mean"), self._kept(ctx, "inverse_std")
        running, tracked = ctx.module_buffers, ctx.training and self.track_running_stats
        count = ctx.buffer("uncounted", (0,), np.int64)
        if tracked:
            count = running["num_batches_tracked"].reshape(1)
            count += 1
        following = [running[name] if tracked else mean[:0] for name in ("running_mean", "running_var")]
        if ctx.shared_batch is not None:
            self._share_statistics(ctx, x, mean, inverse, following if tracked else [], count)
        else:
            ctx.device.launch(
                batch_norm_statistics, x, count, mean, inverse, *following, *sizes(x), tracked,
                self.eps, -1.0 if self.momentum is None else self.momentum,
            )  # fmt: skip
        ctx.saved.update(mean=mean, inverse_std=inverse)

    def _share_statistics(
        self, ctx: Context, x: Array, mean: Array, inverse: Array, running: Sequence[Array], batches: Array
    ) -> None:
        """What the kernel takes of one batch, of a batch whose parts ranks have."""
        xp, shared, count = ctx.device.xp, ctx.shared_batch, _count(ctx, x)
        assert shared is not None
        planes = x.reshape(sizes(x))
        mean[...] = planes.sum(axis=(0, 2))
        shared.sum(mean)
        mean /= count
        squares = shared.sum(xp.square(planes - mean[:, None]).sum(axis=(0, 2)))
        inverse[...] = 1 / xp.sqrt(squares / count + self.eps)
        share = (1 / batches).astype(x.dtype) if self.momentum is None else self.momentum
        for array, value in zip(running, (mean, squares / (count - 1)), strict=False):
            array[...] = (1 - share) * array + share * value

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        sums = self._sums(ctx, gradient, self._scratch(ctx)) if ctx.saved["coupled"] else None
        return self._through_input(ctx, gradient, sums)

    def _through_input(self, ctx: Context, gradient: Array, sums: tuple[Array, Array] | None) -> Array:
        """`through_input` by the sums over what is here, which are those of a whole batch's first where
        ranks share one."""
        if sums is not None and ctx.shared_batch is not None:
            both = ctx.shared_batch.sum(ctx.device.xp.concatenate(sums))
            # The kernel divides by the values that are here.
            both *= gradient.size / self.num_features / _count(ctx, gradient)
            sums = both[: self.num_features], both[self.num_features :]
        return self.through_input(ctx, gradient, ctx.parameters.get("weight"), sums)

    def parameter_gradients(self, ctx: Context, gradient: Array) -> None:
        if self.affine:
            self._sums(ctx, gradient, (ctx.gradients["weight"], ctx.gradients["bias"]))

    def backward(self, ctx: Context, gradient: Array, want_input: bool) -> Array | None:
        if not self.affine or not ctx.saved["coupled"]:
            return super().backward(ctx, gradient, want_input)
        sums = self._sums(ctx, gradient, (ctx.gradients["weight"], ctx.gradients["bias"]))
        return self._through_input(ctx, gradient, sums) if want_input else None

    def _sums(self, ctx: Context, gradient: Array, into: tuple[Array, Array]) -> tuple[Array, Array]:
        """The channels' sums that are the gradients by γ and β."""
        x, mean, inverse = (ctx.saved[name] for name in ("input", "mean", "inverse_std"))
        ctx.device.launch(batch_norm_weight_gradient, x, gradient, mean, inverse, *into, *sizes(x))
        return into

    def _scratch(self, ctx: Context) -> tuple[Array, Array]:
        return self._kept(ctx, "products"), self._kept(ctx, "sums")


def _count(ctx: Context, x: Array) -> int:
    """The values a channel of which the statistics are."""
    batch, _, positions = sizes(x)
    return positions * (batch if ctx.shared_batch is None else ctx.shared_batch.samples)


class BatchNorm1d(BatchNorm):
    """Batch normalisation of (num_features,), or of (num_features, L) over batch and L."""

    def check_shape(self, input_shape: Shape) -> None:
        if len(input_shape) not in (1, 2) or input_shape[0] != self.num_features or None in input_shape:
            raise ShapeError(
                f"{self.name} got input {input_shape}: it takes ({self.num_features},) or "
                f"({self.num_features}, L)"
            )


class BatchNorm2d(BatchNorm):
    """Batch normalisation of images (num_features, height, width) over batch, height and width."""

    def check_shape(self, input_shape: Shape) -> None:
        check_images(self.name, input_shape, self.num_features)

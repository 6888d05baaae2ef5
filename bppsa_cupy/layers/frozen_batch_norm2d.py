"""FrozenBatchNorm2d."""

from __future__ import annotations

from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer, as_positive
from bppsa_cupy.devices import Array
from bppsa_cupy.layers.arguments import check_images
from bppsa_cupy.layers.base import Context, Shape
from bppsa_cupy.layers.normalization import Normalization


class FrozenBatchNorm2d(Normalization):
    """Batch normalisation of images (num_features, height, width) whose statistics, γ and β are fixed, as
    torchvision's: all are buffers, `weight`, `bias`, `running_mean` and `running_var`, (num_features,).

    In both modes it is a diagonal element of the scan. A BatchNorm2d's arrays load into it, but for
    num_batches_tracked.
    """

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        self.num_features = as_integer("FrozenBatchNorm2d", "num_features", num_features, 1)
        self.name = f"FrozenBatchNorm2d({self.num_features})"
        self.eps = as_positive(self.name, "eps", eps)

    def config(self) -> dict[str, Any]:
        return {"num_features": self.num_features, "eps": self.eps}

    def check_shape(self, input_shape: Shape) -> None:
        check_images(self.name, input_shape, self.num_features)

    def initial_buffers(self) -> dict[str, np.ndarray]:
        ones, zeros = np.ones(self.num_features), np.zeros(self.num_features)
        return {"weight": ones, "bias": zeros, "running_mean": zeros, "running_var": ones}

    def forward(self, ctx: Context, x: Array) -> Array:
        buffers = ctx.module_buffers
        self.fix(ctx, buffers["running_mean"], buffers["running_var"])
        weight = ctx.saved["weight"] = self._kept(ctx, "weight")
        weight[...] = buffers["weight"]
        return self.normalize(ctx, x, (weight, buffers["bias"]))

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        return self.through_input(ctx, gradient, ctx.saved["weight"], None)

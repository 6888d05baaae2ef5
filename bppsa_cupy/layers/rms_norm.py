"""RMSNorm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_flag, as_integer, as_list, as_positive
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.jacobians.rms_norm import RMSNormJacobian
from bppsa_cupy.layers.base import Context, Layer, Shape
from bppsa_cupy.raw_kernels.norms import rms_norm_forward, rms_norm_vjp


class RMSNorm(Layer):
    """y = x / sqrt(mean(x²) + eps) times a weight, the mean over the last axes (Zhang and Sennrich 2019).

    normalized_shape    sizes of these axes, or one size; the weight has that shape and begins at 1
    eps                 None for the least step from 1 of the dtype
    elementwise_affine  whether there is a weight
    """

    backward_reads = ("input",)

    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True
    ) -> None:
        sizes = [normalized_shape] if hasattr(normalized_shape, "__index__") else normalized_shape
        takes = "a size, or a list of sizes"
        given = as_list("RMSNorm", "normalized_shape", sizes, takes)
        self.normalized_shape = tuple(as_integer("RMSNorm", "normalized_shape", size, 1) for size in given)
        if not self.normalized_shape:
            raise ShapeError("RMSNorm got normalized_shape=[]: it takes a size, or a list of sizes")
        self.eps = None if eps is None else as_positive("RMSNorm", "eps", eps)
        self.elementwise_affine = as_flag("RMSNorm", "elementwise_affine", elementwise_affine)

    def config(self) -> dict[str, Any]:
        return {
            "normalized_shape": list(self.normalized_shape),
            "eps": self.eps,
            "elementwise_affine": self.elementwise_affine,
        }

    @property
    def width(self) -> int:
        """Values that are normalised together."""
        return math.prod(self.normalized_shape)

    def output_shape(self, input_shape: Shape) -> Shape:
        if tuple(input_shape[-len(self.normalized_shape) :]) != self.normalized_shape:
            raise ShapeError(
                f"RMSNorm({list(self.normalized_shape)}) got input {input_shape}: its last sizes must be "
                f"{self.normalized_shape}"
            )
        return input_shape

    def parameter_shapes(self) -> dict[str, Shape]:
        return {"weight": self.normalized_shape} if self.elementwise_affine else {}

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        return {name: np.ones(shape) for name, shape in self.parameter_shapes().items()}

    def jacobian(self, input_shape: Shape) -> RMSNormJacobian:
        return RMSNormJacobian(self.width, math.prod(input_shape) // self.width)

    def vjp_multiply_adds(self, input_shape: Shape) -> int:
        return 4 * math.prod(input_shape)

    def forward(self, ctx: Context, x: Array) -> Array:
        x, rows = ctx.device.xp.ascontiguousarray(x), x.size // self.width
        y, inverse = ctx.buffer("output", x.shape), ctx.buffer("inverse", (rows,))
        eps = float(np.finfo(ctx.dtype).eps) if self.eps is None else self.eps
        ctx.device.launch(
            rms_norm_forward, x, self._weight(ctx, inverse), y, inverse, rows, self.width, eps,
            self.elementwise_affine,
        )  # fmt: skip
        ctx.saved.update(input=x, output=y, inverse=inverse)
        return y

    def _weight(self, ctx: Context, like: Array) -> Array:
        """The weight, or nothing."""
        return ctx.parameters["weight"].reshape(-1) if self.elementwise_affine else like[:0]

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        result, inverse = ctx.buffer("input_gradient", gradient.shape), ctx.saved["inverse"]
        ctx.device.launch(
            rms_norm_vjp, gradient, ctx.saved["input"], self._weight(ctx, inverse), inverse, result,
            inverse.size, self.width, self.elementwise_affine,
        )  # fmt: skip
        return result

    def parameter_gradients(self, ctx: Context, gradient: Array) -> None:
        if self.elementwise_affine:
            xp, inverse = ctx.device.xp, ctx.saved["inverse"]
            rows = ctx.saved["input"].reshape(-1, self.width) * inverse[:, None]
            rows *= gradient.reshape(-1, self.width)
            xp.sum(rows, axis=0, out=ctx.gradients["weight"].reshape(-1))

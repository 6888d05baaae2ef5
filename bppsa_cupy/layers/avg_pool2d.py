"""AvgPool2d."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.arguments import as_flag, as_integer
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.geometry import Pair, Pool2dGeometry
from bppsa_cupy.jacobians.avg_pool2d import AvgPool2dJacobian
from bppsa_cupy.layers.base import Context, Shape
from bppsa_cupy.layers.pool2d import Pool2d
from bppsa_cupy.raw_kernels.pools import avg_pool2d_forward, avg_pool2d_vjp


class AvgPool2d(Pool2d):
    """The mean of each window of images (channels, height, width), as PyTorch's.

    A window's sum is divided by `divisor_override` where that is given, else by its size: with
    `count_include_pad` the part in the padded input, without it the part in the input.

    Raises ShapeError for arguments that do not fit each other.
    """

    def __init__(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, 1, ceil_mode)
        self.count_include_pad = as_flag(self.name, "count_include_pad", count_include_pad)
        self.divisor_override = divisor_override
        if divisor_override is not None:
            self.divisor_override = as_integer(self.name, "divisor_override", divisor_override)
        if self.divisor_override == 0:
            raise ShapeError(
                f"{self.name} got divisor_override=0: it must not be 0 (None for the window's size)"
            )

    def config(self) -> dict[str, Any]:
        return {
            **super().config(),
            "ceil_mode": self.ceil_mode,
            "count_include_pad": self.count_include_pad,
            "divisor_override": self.divisor_override,
        }

    def jacobian(self, input_shape: Shape) -> AvgPool2dJacobian:
        geometry = self.geometry(input_shape)
        return AvgPool2dJacobian(geometry, geometry.divisors(self.count_include_pad, self.divisor_override))

    def scalars(self, geometry: Pool2dGeometry, images: Array) -> tuple[int, ...]:
        return *super().scalars(geometry, images), self.count_include_pad, self.divisor_override or 0

    def forward(self, ctx: Context, x: Array) -> Array:
        geometry = self.geometry(ctx.input_shape)
        y = ctx.buffer("output", (*x.shape[:2], *geometry.out_size))
        ctx.device.launch(avg_pool2d_forward, x, y, *self.scalars(geometry, x))
        ctx.saved["output"] = y
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        result = ctx.buffer("input_gradient", (gradient.shape[0], *ctx.input_shape))
        scalars = self.scalars(self.geometry(ctx.input_shape), gradient)
        ctx.device.launch(avg_pool2d_vjp, gradient, result, *scalars)
        return result

"""Conv2d."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bppsa_cupy.arguments import as_flag, as_integer, as_pair, is_one_of
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.geometry import Conv2dGeometry, Pair
from bppsa_cupy.jacobians.conv2d import Conv2dJacobian
from bppsa_cupy.layers import unfolded
from bppsa_cupy.layers.arguments import as_argument, as_mask, check_images
from bppsa_cupy.layers.base import Context, Shape
from bppsa_cupy.layers.weighted import Weighted
from bppsa_cupy.raw_kernels.conv2d import conv2d_forward, conv2d_vjp, conv2d_weight_gradient


class Conv2d(Weighted):
    """Cross-correlation of images (in_channels, height, width) with zero padding, as PyTorch's.

    weight (out_channels, in_channels / groups, *kernel_size), bias (out_channels,).

    padding  an integer, a pair, "valid" (none), or "same" (output of the input's size; stride 1 only,
             the odd row or column goes after the input)
    mask     optional array of the weight's shape: weights where it is 0 are 0 and stay 0, and are left
             out of the Jacobian's pattern

    Raises ShapeError for arguments that do not fit each other.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair | str = 0,
        dilation: int | Pair = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        mask: Any = None,
    ) -> None:
        name = f"Conv2d({in_channels}, {out_channels}, {kernel_size})"
        self.name = name
        self.kernel_size = as_pair(name, "kernel_size", kernel_size, 1)
        self.stride = as_pair(name, "stride", stride, 1)
        self.dilation = as_pair(name, "dilation", dilation, 1)
        self.in_channels = as_integer(name, "in_channels", in_channels, 1)
        self.out_channels = as_integer(name, "out_channels", out_channels, 1)
        self.groups = as_integer(name, "groups", groups, 1)
        self.bias = as_flag(name, "bias", bias)
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ShapeError(
                f"{name} got groups={groups}: it must divide {in_channels} input and {out_channels} "
                "output channels"
            )
        if not is_one_of(padding_mode, ["zeros"]):
            raise ShapeError(f"{name} got padding_mode={padding_mode!r}: it takes 'zeros'")
        self.padding: Pair | str
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ShapeError(f"{name} got padding={padding!r}: as a word it takes 'same' or 'valid'")
            if padding == "same" and self.stride != (1, 1):
                raise ShapeError(f"{name} got padding='same' and stride={stride}: 'same' takes stride 1")
            self.padding = padding
        else:
            self.padding = as_pair(name, "padding", padding, 0)
        self.mask = as_mask(name, mask, self.weight_shape)

    def config(self) -> dict[str, Any]:
        return {
            "in_channels": self.in_channels,
            "out_channels": self.out_channels,
            "kernel_size": as_argument(self.kernel_size),
            "stride": as_argument(self.stride),
            "padding": self.padding if isinstance(self.padding, str) else as_argument(self.padding),
            "dilation": as_argument(self.dilation),
            "groups": self.groups,
            "bias": self.bias,
        }

    def geometry(self, input_shape: Shape) -> Conv2dGeometry:
        """The sizes for one input shape. Raises ShapeError where the input does not fit."""
        check_images(self.name, input_shape, self.in_channels)
        total = [self.dilation[k] * (self.kernel_size[k] - 1) for k in (0, 1)]
        if self.padding == "same":
            before = (total[0] // 2, total[1] // 2)
            after = (total[0] - before[0], total[1] - before[1])
        elif isinstance(self.padding, str):
            before = after = (0, 0)
        else:
            before = after = self.padding
        geometry = Conv2dGeometry(
            self.in_channels,
            (input_shape[1], input_shape[2]),
            self.out_channels,
            self.kernel_size,
            self.stride,
            before,
            after,
            self.dilation,
            self.groups,
        )
        if min(geometry.out_size) < 1:
            raise ShapeError(
                f"{self.name} got input {input_shape}: padded by {self.padding} it is smaller than the "
                f"kernel, which spans {total[0] + 1} by {total[1] + 1}"
            )
        return geometry

    def output_shape(self, input_shape: Shape) -> Shape:
        return (self.out_channels, *self.geometry(input_shape).out_size)

    @property
    def weight_shape(self) -> Shape:
        return (self.out_channels, self.in_channels // self.groups, *self.kernel_size)

    def jacobian(self, input_shape: Shape) -> Conv2dJacobian:
        return Conv2dJacobian(self.geometry(input_shape), self.mask)

    def convolution(self, input_shape: Shape) -> Conv2dGeometry:
        return self.geometry(input_shape)

    def dense_forward(self, ctx: Context, x: Array, y: Array) -> None:
        geometry, bias = self.geometry(ctx.input_shape), ctx.parameters.get("bias")

        def windows(y: Array) -> None:
            sizes, given = (x.shape[0], *geometry.scalars(), self.bias), y[:0] if bias is None else bias
            ctx.device.launch(conv2d_forward, x, ctx.parameters["weight"], given, y, *sizes)

        _run(ctx, geometry, "forward", windows, partial(unfolded.forward, ctx, geometry, x, bias), y)

    def dense_vjp(self, ctx: Context, gradient: Array, result: Array) -> None:
        geometry, batch = self.geometry(ctx.input_shape), gradient.shape[0]

        def windows(result: Array) -> None:
            sizes = batch, *geometry.scalars()
            ctx.device.launch(conv2d_vjp, gradient, ctx.parameters["weight"], result, *sizes)

        _run(ctx, geometry, "vjp", windows, partial(unfolded.vjp, ctx, geometry, gradient), result)

    def dense_parameter_gradients(self, ctx: Context, gradient: Array) -> None:
        geometry, x = self.geometry(ctx.input_shape), ctx.saved["input"]
        weight, bias = ctx.gradients["weight"], ctx.gradients.get("bias")

        def windows(weight: Array, bias: Array | None) -> None:
            sizes, given = (len(gradient), *geometry.scalars(), self.bias), gradient[:0]
            given = given if bias is None else bias
            ctx.device.launch(conv2d_weight_gradient, x, gradient, weight, given, *sizes)

        by_products = partial(unfolded.weight_gradient, ctx, geometry, x, gradient)
        _run(ctx, geometry, "weight", windows, by_products, weight, bias, batch=len(gradient))


def _run(
    ctx: Context,
    geometry: Conv2dGeometry,
    work: str,
    windows: Callable[..., None],
    by_products: Callable[..., None],
    *out: Array | None,
    batch: int | None = None,
) -> None:
    """Fill the arrays `out` by the quicker of two ways, which is measured on arrays like them."""

    def scratch(way: Callable[..., None]) -> Callable[[], None]:
        own = (None if array is None else ctx.device.empty(array.shape, array.dtype) for array in out)
        return partial(way, *own)

    first = out[0]
    assert first is not None
    ways = {"windows": partial(scratch, windows), "unfolded": partial(scratch, by_products)}
    count = first.shape[0] if batch is None else batch
    chosen = unfolded.is_quicker(ctx, geometry, count, work, ways)
    (by_products if chosen else windows)(*out)

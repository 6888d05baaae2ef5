"""Conv2d: by kernels that go through windows, or on a GPU by unfolded patches and the array module's matmul
(cuBLAS), where that is measured to be quicker.

A group's patches are a matrix (channels / groups * taps, samples * positions), so that a product has one long
side however small the planes are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from bppsa_cupy.arguments import as_flag, as_integer, as_pair, is_one_of
from bppsa_cupy.devices import Array, rules
from bppsa_cupy.devices.autotune import Way, rounded
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.geometry import Conv2dGeometry, Pair
from bppsa_cupy.jacobians.conv2d import Conv2dJacobian
from bppsa_cupy.layers.arguments import as_mask, check_images
from bppsa_cupy.layers.base import Context, Shape
from bppsa_cupy.layers.weighted import Weighted
from bppsa_cupy.raw_kernels.conv2d import (
    conv2d_fold,
    conv2d_forward,
    conv2d_unfold,
    conv2d_vjp,
    conv2d_weight_gradient,
)

#: Bytes of the patches of some samples at a time, at most: they stay in L2.
PATCH_BYTES = 16 << 20


class Conv2d(Weighted):
    """Cross-correlation of images (in_channels, height, width) with zero padding, as PyTorch's.

    weight (out_channels, in_channels / groups, *kernel_size), bias (out_channels,).

    padding  an integer, a pair, "valid" (none), or "same" (output of the input's size; stride 1 only,
             the odd row or column goes after the input)
    mask     optional array of the weight's shape: weights where it is 0 are 0 and stay 0, and are left
             out of the Jacobian's pattern

    Raises ShapeError for arguments that do not fit each other.
    """

    arguments = (
        "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias",
    )  # fmt: skip

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
            self.in_channels, (input_shape[1], input_shape[2]), self.out_channels, self.kernel_size,
            self.stride, before, after, self.dilation, self.groups,
        )  # fmt: skip
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

        _run(ctx, geometry, "forward", windows, partial(_forward_unfolded, ctx, geometry, x, bias), y)

    def dense_vjp(self, ctx: Context, gradient: Array, result: Array) -> None:
        geometry, batch = self.geometry(ctx.input_shape), gradient.shape[0]

        def windows(result: Array) -> None:
            sizes = batch, *geometry.scalars()
            ctx.device.launch(conv2d_vjp, gradient, ctx.parameters["weight"], result, *sizes)

        _run(ctx, geometry, "vjp", windows, partial(_vjp_unfolded, ctx, geometry, gradient), result)

    def dense_parameter_gradients(self, ctx: Context, gradient: Array) -> None:
        geometry, x = self.geometry(ctx.input_shape), ctx.saved["input"]
        weight, bias = ctx.gradients["weight"], ctx.gradients.get("bias")

        def windows(weight: Array, bias: Array | None) -> None:
            sizes, given = (len(gradient), *geometry.scalars(), self.bias), gradient[:0]
            given = given if bias is None else bias
            ctx.device.launch(conv2d_weight_gradient, x, gradient, weight, given, *sizes)

        by_products = partial(_weight_gradient_unfolded, ctx, geometry, x, gradient)
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
    chosen = _unfolds(ctx, geometry, count, work, ways)
    (by_products if chosen else windows)(*out)


def _unfolds(ctx: Context, geometry: Conv2dGeometry, batch: int, work: str, ways: Mapping[str, Way]) -> bool:
    """Whether "forward", "vjp" or "weight" goes by matrix products, as measured on a GPU, or by the rules.

    ways  "windows" and "unfolded": what makes each pass on scratch arrays
    """
    device, parts = ctx.device, -(-batch // _samples(ctx, geometry))
    launches = parts * (3 if work == "weight" else 2) + parts * geometry.groups
    terms = batch * math.prod(geometry.out_size) * _depth(geometry) * geometry.out_channels
    unfolds = batch > 0 and rules.unfolds(device.shared_bytes is None, work, terms, launches)
    if not device.tunes or not batch:
        return unfolds
    key = f"conv2d {work} B{rounded(batch)} {geometry.scalars()} {ctx.dtype}"
    return device.choices.choose(key, ways, "unfolded" if unfolds else "windows") == "unfolded"


def _forward_unfolded(ctx: Context, geometry: Conv2dGeometry, x: Array, bias: Array | None, y: Array) -> None:
    """Write the output `y`; `bias` (out_channels,) or None."""
    xp, weight = ctx.device.xp, _by_group(ctx.parameters["weight"], geometry)
    for part in _parts(ctx, geometry, x.shape[0]):
        patches = _unfolded(ctx, geometry, x[part])
        product = ctx.buffer("product", (geometry.groups, weight.shape[1], patches.shape[2]))
        for group in range(geometry.groups):
            ctx.device.multiply(weight[group], patches[group], product[group])
        by_sample = _by_channel(product, geometry, part).swapaxes(0, 1)
        out = y[part].reshape(by_sample.shape)
        if bias is None:
            out[...] = by_sample
        else:
            xp.add(by_sample, bias[None, :, None], out=out)


def _vjp_unfolded(ctx: Context, geometry: Conv2dGeometry, gradient: Array, result: Array) -> None:
    """Write the gradient by the input, `result`."""
    weight = _by_group(ctx.parameters["weight"], geometry)
    for part in _parts(ctx, geometry, gradient.shape[0]):
        by_group = _grouped(ctx, geometry, gradient, part)
        patches = _patches(ctx, geometry, part.stop - part.start)
        for group in range(geometry.groups):
            ctx.device.multiply(weight[group].T, by_group[group], patches[group])
        ctx.device.launch(conv2d_fold, patches, result[part], *_scalars(geometry, part))


def _weight_gradient_unfolded(
    ctx: Context, geometry: Conv2dGeometry, x: Array, gradient: Array, weight: Array, bias: Array | None
) -> None:
    """Write the gradients by `weight` and, unless it is None, `bias`."""
    xp, total = ctx.device.xp, _by_group(weight, geometry)
    for part in _parts(ctx, geometry, x.shape[0]):
        by_group = _grouped(ctx, geometry, gradient, part)
        patches = _unfolded(ctx, geometry, x[part])
        sums = ctx.buffer("sums", total.shape) if part.start else total
        for group in range(geometry.groups):
            ctx.device.multiply(by_group[group], patches[group].T, sums[group])
        if part.start:
            total += sums
    if bias is not None:
        xp.sum(gradient, axis=(0, 2, 3), out=bias)


def _depth(geometry: Conv2dGeometry) -> int:
    """Terms of an output's sum."""
    return geometry.in_channels // geometry.groups * math.prod(geometry.kernel_size)


def _samples(ctx: Context, geometry: Conv2dGeometry) -> int:
    """Samples whose patches are made at a time."""
    patches = geometry.groups * _depth(geometry) * math.prod(geometry.out_size) * ctx.dtype.itemsize
    return max(1, PATCH_BYTES // patches)


def _parts(ctx: Context, geometry: Conv2dGeometry, batch: int) -> Iterator[slice]:
    """The batch in parts of nearly equal numbers of samples."""
    count = -(-batch // _samples(ctx, geometry))
    for number in range(count):
        yield slice(batch * number // count, batch * (number + 1) // count)


def _by_group(weight: Array, geometry: Conv2dGeometry) -> Array:
    """Weights, or their gradient, as (groups, out_channels / groups, terms)."""
    return weight.reshape(geometry.groups, -1, _depth(geometry))


def _by_channel(product: Array, geometry: Conv2dGeometry, part: slice) -> Array:
    """(groups, out_channels / groups, samples * positions) as (out_channels, samples, positions)."""
    return product.reshape(geometry.out_channels, part.stop - part.start, -1)


def _grouped(ctx: Context, geometry: Conv2dGeometry, gradient: Array, part: slice) -> Array:
    """Of some samples, the gradient by the output as (groups, out_channels / groups, samples * positions)."""
    samples, positions = part.stop - part.start, math.prod(geometry.out_size)
    shape = geometry.groups, geometry.out_channels // geometry.groups, samples * positions
    made = ctx.buffer("product", shape)
    by_sample = gradient[part].reshape(samples, geometry.out_channels, positions)
    _by_channel(made, geometry, part)[...] = by_sample.swapaxes(0, 1)
    return made


def _patches(ctx: Context, geometry: Conv2dGeometry, samples: int) -> Array:
    """Room for the patches of some samples, (groups, terms, samples * positions)."""
    shape = geometry.groups, _depth(geometry), samples * math.prod(geometry.out_size)
    return ctx.buffer("patches", shape)


def _unfolded(ctx: Context, geometry: Conv2dGeometry, x: Array) -> Array:
    """The patches of some samples."""
    patches = _patches(ctx, geometry, x.shape[0])
    ctx.device.launch(conv2d_unfold, x, patches, *_scalars(geometry, slice(0, x.shape[0])))
    return patches


def _scalars(geometry: Conv2dGeometry, part: slice) -> tuple[int, ...]:
    """The sizes as the two kernels take them: the batch, and those of a convolution but its outputs' channels
    and groups."""
    in_channels, in_height, in_width, _, *windows, _ = geometry.scalars()
    return part.stop - part.start, in_channels, in_height, in_width, *windows

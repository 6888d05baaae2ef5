"""Conv2d: by kernels that go through windows, or on a GPU by unfolded patches and the array module's matmul
(cuBLAS), where that is measured to be quicker.

A group's patches are a matrix (channels / groups * taps, samples * positions), so that a product has one long
side however small the planes are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bppsa_cupy.arguments import as_choice, as_flag, as_integer, as_pair
from bppsa_cupy.devices import Array, rules
from bppsa_cupy.devices.autotune import rounded
from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.geometry import Conv2dGeometry, Pair
from bppsa_cupy.jacobians.conv2d import Conv2dJacobian
from bppsa_cupy.layers.base import Context, Shape, check_images
from bppsa_cupy.layers.weighted import Weighted, as_mask
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
    """Two-dimensional convolution (cross-correlation) of images (in_channels, height, width).

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels.
    kernel_size : int or tuple of int
        Rows and columns of the kernel.
    stride : int or tuple of int, default: 1
        Distance between windows.
    padding : int, tuple of int, "valid" or "same", default: 0
        Zeros on each side. "valid" adds none. "same" keeps the input's size for stride 1.
    dilation : int or tuple of int, default: 1
        Distance between the elements of a window.
    groups : int, default: 1
        Number of groups of channels.
    bias : bool, default: True
        Whether to add a bias.
    padding_mode : {"zeros"}, default: "zeros"
        Only zeros are supported.
    mask : array, optional
        Zeros and ones in the shape of the weight. Weights with mask 0 stay 0 and are left out of the
        Jacobian's pattern.

    Raises
    ------
    ShapeError
        If a size or the mask is invalid, or an input does not fit.
    ArgumentError
        If `groups`, `padding_mode`, a string as `padding`, or `bias` is invalid.

    Notes
    -----
    Parameters: weight (out_channels, in_channels / groups, rows, columns) and bias (out_channels,).

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> layer = bp.Conv2d(3, 6, 5)
    >>> layer.output_shape((3, 32, 32)), layer.jacobian((3, 32, 32)).pattern.shape
    ((6, 28, 28), (3072, 4704))
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
            raise ArgumentError(
                f"{name} got groups={groups}: pass a number that divides {in_channels} input channels and "
                f"{out_channels} output channels"
            )
        as_choice(name, "padding_mode", padding_mode, ["zeros"])
        self.padding: Pair | str
        if isinstance(padding, str):
            as_choice(name, "padding", padding, ("same", "valid"))
            if padding == "same" and self.stride != (1, 1):
                raise ArgumentError(
                    f"{name} got padding='same' and stride={stride}: use stride 1 with 'same'"
                )
            self.padding = padding
        else:
            self.padding = as_pair(name, "padding", padding, 0)
        self.mask = as_mask(name, mask, self.weight_shape)

    def geometry(self, input_shape: Shape) -> Conv2dGeometry:
        """Return the geometry of the convolution for an input shape (channels, rows, columns).

        The geometry consists of the sizes of input and kernel, stride, padding, dilation and groups. Raises
        ShapeError if the input does not fit.
        """
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
                f"{self.name} got input {input_shape}, which with padding {self.padding} is smaller than the "
                f"kernel, {total[0] + 1} by {total[1] + 1}: use a larger input or more padding"
            )
        return geometry

    def output_shape(self, input_shape: Shape) -> Shape:
        return (self.out_channels, *self.geometry(input_shape).out_size)

    @property
    def weight_shape(self) -> Shape:
        return (self.out_channels, self.in_channels // self.groups, *self.kernel_size)

    def jacobian(self, input_shape: Shape) -> Conv2dJacobian:
        return Conv2dJacobian(self.geometry(input_shape), self.mask)

    def dense_forward(self, ctx: Context, x: Array, y: Array) -> None:
        self._fill(ctx, "forward", x, (y,))

    def dense_vjp(self, ctx: Context, gradient: Array, result: Array) -> None:
        self._fill(ctx, "vjp", gradient, (result,))

    def dense_parameter_gradients(self, ctx: Context, gradient: Array) -> None:
        self._fill(ctx, "weight", gradient, (ctx.gradients["weight"], ctx.gradients.get("bias")))

    def _fill(self, ctx: Context, work: str, array: Array, out: tuple[Array | None, ...]) -> None:
        """Fill `out` by windows or by matrix products, as measured on arrays like them, or by the rules."""
        geometry, device, batch = self.geometry(ctx.input_shape), ctx.device, len(array)
        unfolded = Unfolded(ctx, geometry)

        def by_windows(*out: Array | None) -> None:
            first, none = out[0], array[:0]
            sizes = batch, *geometry.scalars()
            if work == "forward":
                bias = ctx.parameters.get("bias", none)
                device.launch(conv2d_forward, array, ctx.parameters["weight"], bias, first, *sizes, self.bias)
            elif work == "vjp":
                device.launch(conv2d_vjp, array, ctx.parameters["weight"], first, *sizes)
            else:
                bias = none if out[1] is None else out[1]
                x = ctx.saved["input"]
                device.launch(conv2d_weight_gradient, x, array, first, bias, *sizes, self.bias)

        ways: dict[str, Callable[..., None]] = {
            "windows": by_windows,
            "unfolded": partial(getattr(unfolded, work), array),
        }

        def scratch(way: str) -> Callable[[], None]:
            results = (None if array is None else device.empty(array.shape, array.dtype) for array in out)
            return partial(ways[way], *results)

        parts = -(-batch // unfolded.samples)
        launches = parts * (3 if work == "weight" else 2) + parts * geometry.groups
        terms = batch * unfolded.positions * unfolded.depth * geometry.out_channels
        unfolds = batch > 0 and rules.unfolds(device.shared_bytes is None, work, terms, launches)
        way = "unfolded" if unfolds else "windows"
        if device.tunes and batch:
            key = f"conv2d {work} B{rounded(batch)} {geometry.scalars()} {ctx.dtype}"
            way = device.choices.choose(key, {way: partial(scratch, way) for way in ways}, way)
        ways[way](*out)


class Unfolded:
    """A convolution by matrix products, the patches of some samples at a time.

    Parameters
    ----------
    depth
        Terms in the sum of an output.
    positions
        Positions of an output plane.
    samples
        Samples whose patches are computed together.
    """

    def __init__(self, ctx: Context, geometry: Conv2dGeometry) -> None:
        self.ctx, self.device, self.geometry, self.groups = ctx, ctx.device, geometry, geometry.groups
        self.depth = geometry.in_channels // geometry.groups * math.prod(geometry.kernel_size)
        self.positions = math.prod(geometry.out_size)
        self.samples = max(1, PATCH_BYTES // (self.groups * self.depth * self.positions * ctx.dtype.itemsize))

    def forward(self, x: Array, y: Array) -> None:
        """Write the output `y`."""
        bias, weight = self.ctx.parameters.get("bias"), self._by_group(self.ctx.parameters["weight"])
        for part, sizes, patches, product in self._parts(len(x)):
            self.device.launch(conv2d_unfold, x[part], patches, *sizes)
            for group in range(self.groups):
                self.device.multiply(weight[group], patches[group], product[group])
            by_sample = self._by_sample(product)
            out = y[part].reshape(by_sample.shape)
            if bias is None:
                out[...] = by_sample
            else:
                self.device.xp.add(by_sample, bias[None, :, None], out=out)

    def vjp(self, gradient: Array, result: Array) -> None:
        """Write the gradient with respect to the input, `result`."""
        weight = self._by_group(self.ctx.parameters["weight"])
        for part, sizes, patches, product in self._parts(len(gradient)):
            by_sample = self._by_sample(product)
            by_sample[...] = gradient[part].reshape(by_sample.shape)
            for group in range(self.groups):
                self.device.multiply(weight[group].T, product[group], patches[group])
            self.device.launch(conv2d_fold, patches, result[part], *sizes)

    def weight(self, gradient: Array, weight: Array, bias: Array | None) -> None:
        """Write the gradients with respect to `weight` and, unless it is None, `bias`."""
        x, total = self.ctx.saved["input"], self._by_group(weight)
        for part, sizes, patches, product in self._parts(len(x)):
            by_sample = self._by_sample(product)
            by_sample[...] = gradient[part].reshape(by_sample.shape)
            self.device.launch(conv2d_unfold, x[part], patches, *sizes)
            sums = self.ctx.buffer("sums", total.shape) if part.start else total
            for group in range(self.groups):
                self.device.multiply(product[group], patches[group].T, sums[group])
            if part.start:
                total += sums
        if bias is not None:
            self.device.xp.sum(gradient, axis=(0, 2, 3), out=bias)

    def _parts(self, batch: int) -> Iterator[tuple[slice, tuple[int, ...], Array, Array]]:
        """Yield parts of nearly equal numbers of samples: the part, the sizes that kernels read, and buffers.

        The buffers are those of the patches, (groups, depth, samples * positions), and of the outputs,
        (groups, out_channels / groups, samples * positions).
        """
        in_channels, in_height, in_width, _, *windows, _ = self.geometry.scalars()
        outputs, count = self.geometry.out_channels // self.groups, -(-batch // self.samples)
        for number in range(count):
            part = slice(batch * number // count, batch * (number + 1) // count)
            samples = part.stop - part.start
            patches = self.ctx.buffer("patches", (self.groups, self.depth, samples * self.positions))
            product = self.ctx.buffer("product", (self.groups, outputs, samples * self.positions))
            yield part, (samples, in_channels, in_height, in_width, *windows), patches, product

    def _by_group(self, weight: Array) -> Array:
        """Return weights, or their gradient, as (groups, out_channels / groups, depth)."""
        return weight.reshape(self.groups, -1, self.depth)

    def _by_sample(self, product: Array) -> Array:
        """Return outputs as (samples, out_channels, positions)."""
        return product.reshape(self.geometry.out_channels, -1, self.positions).swapaxes(0, 1)

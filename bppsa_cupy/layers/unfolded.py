"""Convolutions on a GPU as products of matrices: patches unfolded some samples at a time, and the array
module's matmul (cuBLAS), where that is measured to be quicker than the kernels that go through windows.

A group's patches are a matrix (channels / groups * taps, samples * positions), so that a product has one long
side however small the planes are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from bppsa_cupy.devices import Array, rules
from bppsa_cupy.devices.autotune import Way, rounded
from bppsa_cupy.geometry import Conv2dGeometry
from bppsa_cupy.layers.base import Context
from bppsa_cupy.raw_kernels.conv2d import conv2d_fold, conv2d_unfold

#: Bytes of the patches of some samples at a time, at most: they stay in L2.
PATCH_BYTES = 16 << 20


def is_quicker(
    ctx: Context, geometry: Conv2dGeometry, batch: int, work: str, ways: Mapping[str, Way]
) -> bool:
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


def forward(ctx: Context, geometry: Conv2dGeometry, x: Array, bias: Array | None, y: Array) -> None:
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


def vjp(ctx: Context, geometry: Conv2dGeometry, gradient: Array, result: Array) -> None:
    """Write the gradient by the input, `result`."""
    weight = _by_group(ctx.parameters["weight"], geometry)
    for part in _parts(ctx, geometry, gradient.shape[0]):
        by_group = _grouped(ctx, geometry, gradient, part)
        patches = _patches(ctx, geometry, part.stop - part.start)
        for group in range(geometry.groups):
            ctx.device.multiply(weight[group].T, by_group[group], patches[group])
        ctx.device.launch(conv2d_fold, patches, result[part], *_scalars(geometry, part))


def weight_gradient(
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

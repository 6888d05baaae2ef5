"""Two-dimensional convolution: the gradients by weight and bias (paper, equation 2)."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape, kernel
from bppsa_cupy.raw_kernels.twins.shifted import (
    STEP,
    add_products,
    group_sums,
    lane_sum,
    pack,
    padded_length,
    shifts_win,
    tap_shifts,
)
from bppsa_cupy.raw_kernels.twins.unfold import LEAST_COLUMNS, WORKERS, channels_per_part, gather_rows, unfold
from bppsa_cupy.system.compiled import compiled

#: Threads of a block, which share the sum of one weight's gradient; the .cu text counts on it.
THREADS = 128

#: Columns of one tile of patches: a matrix product over them adds to its result once.
TILE_COLUMNS = 512

#: Bytes of one worker's sums by shifts, at most: about a second cache.
CACHED = 1 << 20


@compiled(parallel=True)
def _by_shifts(
    input, gradient, weight_gradient, bias_gradient, batch, in_channels, in_height, in_width, out_channels,
    out_height, out_width, kernel_height, kernel_width, padding_y, padding_x, dilation_y, dilation_x, groups,
    biased,
):  # fmt: skip
    # Each weight's gradient is a product of a gradient plane and a shifted input plane; the bias's is
    # that with a plane of ones.
    channels, features = in_channels // groups, out_channels // groups
    depth = channels * kernel_height * kernel_width
    terms = depth + (1 if biased else 0)
    rows, columns = out_height + dilation_y * (kernel_height - 1), out_width + dilation_x * (kernel_width - 1)
    length = padded_length(out_height, out_width, columns, STEP)
    in_plane, out_plane, plane = in_height * in_width, out_height * out_width, rows * columns
    size = group_sums(features, terms)
    workers = min(batch, WORKERS)
    sums = np.zeros((workers, groups * size), input.dtype)
    for worker in prange(workers):
        shifts = np.zeros(terms + 3, np.uint64)
        tap_shifts(channels, plane, columns, kernel_height, kernel_width, dilation_y, dilation_x, shifts)
        packed = np.zeros(channels * plane + STEP + length, input.dtype)
        shifts[depth] = channels * plane + STEP if biased else 0
        packed[channels * plane + STEP :] = 1
        planes = np.zeros((features + 3) // 4 * 4 * length, input.dtype)
        for sample in range(batch * worker // workers, batch * (worker + 1) // workers):
            for group in range(groups):
                first = (sample * in_channels + group * channels) * in_plane
                pack(
                    input, first, channels, in_height, in_width, packed, plane, rows, columns, padding_y,
                    padding_x,
                )  # fmt: skip
                first = (sample * out_channels + group * features) * out_plane
                pack(
                    gradient,
                    first,
                    features,
                    out_height,
                    out_width,
                    planes,
                    length,
                    out_height,
                    columns,
                    0,
                    0,
                )
                part = sums[worker, group * size : (group + 1) * size]
                add_products(part, planes, features, packed, shifts, terms, length)
    for channel in prange(out_channels):
        group, feature = channel // features, channel % features
        for term in range(terms):
            value = input.dtype.type(0)
            for worker in range(workers):
                part = sums[worker, group * size : (group + 1) * size]
                value += lane_sum(part, feature, term, terms)
            if term < depth:
                weight_gradient[channel * depth + term] = value
            else:
                bias_gradient[channel] = value


@compiled(parallel=True)
def _by_patches(
    input, gradient, weight_gradient, bias_gradient, batch, in_channels, in_height, in_width, out_channels,
    out_height, out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y,
    dilation_x, groups, biased,
):  # fmt: skip
    # Each worker makes the gradients of the weights of some input channels, over one of few spans of output
    # rows, a tile at a time; the spans' sums are added in their order.
    channels, features = in_channels // groups, out_channels // groups
    taps, rows = kernel_height * kernel_width, batch * out_height
    depth = channels * taps
    per_part = channels_per_part(channels, taps, LEAST_COLUMNS)
    parts = groups * ((channels + per_part - 1) // per_part)
    tile = max(1, min(rows, (TILE_COLUMNS + out_width - 1) // max(1, out_width)))
    tiles = (rows + tile - 1) // tile
    spans = max(1, min(tiles, WORKERS // parts))
    # The gradient, a tile after the other, each (out_channels, columns of the tile).
    grown = np.empty(rows * out_width * out_channels, input.dtype)
    for t in prange(tiles):
        gather_rows(
            gradient, grown[t * tile * out_width * out_channels :], t * tile, min(tile, rows - t * tile), 0,
            out_channels, out_channels, out_height, out_width,
        )  # fmt: skip
    sums = np.zeros((spans, out_channels * depth), input.dtype)
    for task in prange(spans * parts):
        span, part = task // parts, task % parts
        group = part // (parts // groups)
        first = part % (parts // groups) * per_part
        count = min(per_part, channels - first)
        patches = np.empty(count * taps * tile * out_width, input.dtype)
        product = np.empty((features, count * taps), input.dtype)
        for t in range(tiles * span // spans, tiles * (span + 1) // spans):
            first_row = t * tile
            height = min(tile, rows - first_row)
            width = height * out_width
            unfold(
                input, patches, first_row, height, group * channels + first, count, in_channels, in_height,
                in_width, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y,
                padding_x, dilation_y, dilation_x,
            )  # fmt: skip
            start = first_row * out_width * out_channels + group * features * width
            np.dot(
                grown[start : start + features * width].reshape(features, width),
                patches[: count * taps * width].reshape(count * taps, width).T,
                product,
            )
            for feature in range(features):
                target = np.uint64((group * features + feature) * depth + first * taps)
                for k in range(np.uint64(count * taps)):
                    sums[span, target + k] += product[feature, k]
    for i in prange(out_channels * depth):
        value = input.dtype.type(0)
        for span in range(spans):
            value += sums[span, i]
        weight_gradient[i] = value
    if biased:
        for channel in prange(out_channels):
            value = input.dtype.type(0)
            for t in range(tiles):
                width = min(tile, rows - t * tile) * out_width
                start = t * tile * out_width * out_channels + channel * width
                for k in range(np.uint64(start), np.uint64(start + width)):
                    value += grown[k]
            bias_gradient[channel] = value


@compiled()
def conv2d_weight_gradient(
    input, gradient, weight_gradient, bias_gradient, batch, in_channels, in_height, in_width, out_channels,
    out_height, out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y,
    dilation_x, groups, biased,
):  # fmt: skip
    columns = out_width + dilation_x * (kernel_width - 1)
    terms = in_channels // groups * kernel_height * kernel_width + 1
    fits = groups * group_sums(out_channels // groups, terms) * input.itemsize <= CACHED
    if (
        stride_y == 1
        and stride_x == 1
        and fits
        and shifts_win(out_height, out_width, columns, out_channels // groups)
    ):
        _by_shifts(
            input, gradient, weight_gradient, bias_gradient, batch, in_channels, in_height, in_width,
            out_channels, out_height, out_width, kernel_height, kernel_width, padding_y, padding_x,
            dilation_y, dilation_x, groups, biased,
        )  # fmt: skip
    else:
        _by_patches(
            input, gradient, weight_gradient, bias_gradient, batch, in_channels, in_height, in_width,
            out_channels, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y,
            padding_x, dilation_y, dilation_x, groups, biased,
        )  # fmt: skip


def launch(s):
    sums = s["out_channels"] * (
        s["in_channels"] // s["groups"] * s["kernel_height"] * s["kernel_width"] + s["biased"]
    )
    return LaunchShape((min(sums, MAXIMAL_GRID), 1, 1), (THREADS, 1, 1))


KERNEL = kernel(conv2d_weight_gradient, launch)

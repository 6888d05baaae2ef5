"""Two-dimensional convolution: the output."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.lanes import LANES
from bppsa_cupy.raw_kernels.twins.shifted import correlate, pack, shifts_win, tap_shifts
from bppsa_cupy.raw_kernels.twins.unfold import (
    FEW_TILES,
    LEAST_COLUMNS,
    WORKERS,
    channels_per_part,
    rows_per_tile,
    unfold,
)
from bppsa_cupy.system.compiled import compiled

#: Rows of weights a matrix product has at least.
LEAST_FEATURES = 64


@compiled(parallel=True)
def _by_shifts(
    input, weight, bias, output, batch, in_channels, in_height, in_width, out_channels, out_height, out_width,
    kernel_height, kernel_width, padding_y, padding_x, dilation_y, dilation_x, groups,
):  # fmt: skip
    channels, features = in_channels // groups, out_channels // groups
    depth = channels * kernel_height * kernel_width
    rows, columns = out_height + dilation_y * (kernel_height - 1), out_width + dilation_x * (kernel_width - 1)
    in_plane, out_plane = in_height * in_width, out_height * out_width
    workers = min(batch, WORKERS)
    for worker in prange(workers):
        shifts = np.empty(depth, np.uint64)
        tap_shifts(
            channels, rows * columns, columns, kernel_height, kernel_width, dilation_y, dilation_x, shifts
        )
        packed = np.zeros(channels * rows * columns + LANES, input.dtype)
        for sample in range(batch * worker // workers, batch * (worker + 1) // workers):
            for group in range(groups):
                first = (sample * in_channels + group * channels) * in_plane
                pack(
                    input, first, channels, in_height, in_width, packed, rows * columns, rows, columns,
                    padding_y, padding_x,
                )  # fmt: skip
                left, right = group * features, (group + 1) * features
                correlate(
                    packed, shifts, weight[left * depth : right * depth], depth, bias[left:right], output,
                    (sample * out_channels + left) * out_plane, features, out_height, out_width, columns,
                )  # fmt: skip


@compiled(parallel=True)
def _by_patches(
    input, weight, bias, output, batch, in_channels, in_height, in_width, out_channels, out_height,
    out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
    groups, biased,
):  # fmt: skip
    # A tile of output rows at a time: its patches, one GEMM a group, then the bias on the way out.
    channels, features = in_channels // groups, out_channels // groups
    depth, plane = channels * kernel_height * kernel_width, out_height * out_width
    rows = batch * out_height
    tile = rows_per_tile(depth, out_width, rows, input.itemsize, LEAST_COLUMNS)
    tiles = (rows + tile - 1) // tile
    workers = min(tiles, WORKERS)
    for worker in prange(workers):
        patches = np.empty(depth * tile * out_width, input.dtype)
        result = np.empty(features * tile * out_width, input.dtype)
        for t in range(tiles * worker // workers, tiles * (worker + 1) // workers):
            first_row = t * tile
            count = min(tile, rows - first_row)
            width = count * out_width
            for group in range(groups):
                unfold(
                    input, patches, first_row, count, group * channels, channels, in_channels, in_height,
                    in_width, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x,
                    padding_y, padding_x, dilation_y, dilation_x,
                )  # fmt: skip
                product = result[: features * width].reshape(features, width)
                np.dot(
                    weight[group * features * depth : (group + 1) * features * depth].reshape(
                        features, depth
                    ),
                    patches[: depth * width].reshape(depth, width),
                    product,
                )
                for feature in range(features):
                    channel = group * features + feature
                    shift = bias[channel] if biased else output.dtype.type(0)
                    for r in range(count):
                        sample = (first_row + r) // out_height
                        y = first_row + r - sample * out_height
                        target = np.uint64((sample * out_channels + channel) * plane + y * out_width)
                        source = np.uint64(feature * width + r * out_width)
                        for x in range(np.uint64(out_width)):
                            output[target + x] = result[source + x] + shift


@compiled(parallel=True)
def _by_features(
    input, weight, bias, output, batch, in_channels, in_height, in_width, out_channels, out_height,
    out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
    groups, biased,
):  # fmt: skip
    # Few output positions: the patches of all of them, then one GEMM for each part of the features.
    channels, features = in_channels // groups, out_channels // groups
    taps, plane, rows = kernel_height * kernel_width, out_height * out_width, batch * out_height
    depth, width = channels * taps, batch * plane
    per_part = channels_per_part(channels, taps, LEAST_COLUMNS)
    per_block = channels_per_part(features, 1, LEAST_FEATURES)
    patches = np.empty(depth * width, input.dtype)
    for group in range(groups):
        for part in prange((channels + per_part - 1) // per_part):
            first = part * per_part
            unfold(
                input, patches[first * taps * width :], 0, rows, group * channels + first,
                min(per_part, channels - first), in_channels, in_height, in_width, out_height, out_width,
                kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
            )  # fmt: skip
        for block in prange((features + per_block - 1) // per_block):
            first = block * per_block
            count = min(per_block, features - first)
            start = group * features + first
            product = np.empty((count, width), input.dtype)
            np.dot(
                weight[start * depth : (start + count) * depth].reshape(count, depth),
                patches.reshape(depth, width),
                product,
            )
            result = product.reshape(-1)
            for feature in range(count):
                shift = bias[start + feature] if biased else output.dtype.type(0)
                for sample in range(batch):
                    target = np.uint64((sample * out_channels + start + feature) * plane)
                    source = np.uint64(feature * width + sample * plane)
                    for x in range(np.uint64(plane)):
                        output[target + x] = result[source + x] + shift


@compiled()
def conv2d_forward(
    input, weight, bias, output, batch, in_channels, in_height, in_width, out_channels, out_height,
    out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
    groups, biased,
):  # fmt: skip
    columns = out_width + dilation_x * (kernel_width - 1)
    if stride_y == 1 and stride_x == 1 and shifts_win(out_height, out_width, columns, out_channels // groups):
        _by_shifts(
            input, weight, bias, output, batch, in_channels, in_height, in_width, out_channels, out_height,
            out_width, kernel_height, kernel_width, padding_y, padding_x, dilation_y, dilation_x, groups,
        )  # fmt: skip
        return
    rows, depth = batch * out_height, in_channels // groups * kernel_height * kernel_width
    tile = rows_per_tile(depth, out_width, rows, input.itemsize, LEAST_COLUMNS)
    if rows < FEW_TILES * tile:
        _by_features(
            input, weight, bias, output, batch, in_channels, in_height, in_width, out_channels, out_height,
            out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y,
            dilation_x, groups, biased,
        )  # fmt: skip
    else:
        _by_patches(
            input, weight, bias, output, batch, in_channels, in_height, in_width, out_channels, out_height,
            out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y,
            dilation_x, groups, biased,
        )  # fmt: skip


KERNEL = kernel(conv2d_forward, "batch * out_channels * out_height * out_width")

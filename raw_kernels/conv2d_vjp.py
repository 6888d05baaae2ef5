"""Two-dimensional convolution: the gradient by the input."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.convolution.indirect import convolve
from bppsa_cupy.raw_kernels.twins.convolution.unfold import (
    FEW_TILES,
    LEAST_COLUMNS,
    WORKERS,
    channels_per_part,
    fold,
    gather_rows,
    rows_per_tile,
)
from bppsa_cupy.raw_kernels.twins.convolution.window import Window
from bppsa_cupy.raw_kernels.twins.convolution.winograd import is_quicker, winograd
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def _by_patches(gradient, weight, input_gradient, batch, in_channels, out_channels, groups, sizes):
    # Whole samples a worker, so that no two add to one input; inside, a tile of output rows at a time.
    window = Window(*sizes)
    out_height, out_width = window.out_height, window.out_width
    channels, features = in_channels // groups, out_channels // groups
    depth = channels * window.kernel_height * window.kernel_width
    sample_size = in_channels * window.in_height * window.in_width
    tile = rows_per_tile(depth, out_width, batch * out_height, gradient.itemsize, LEAST_COLUMNS)
    workers = max(1, min(batch, WORKERS, batch * out_height * out_width // LEAST_COLUMNS))
    for worker in prange(workers):
        patches = np.empty(depth * tile * out_width, gradient.dtype)
        rows = np.empty(features * tile * out_width, gradient.dtype)
        first_sample, end_sample = batch * worker // workers, batch * (worker + 1) // workers
        for i in range(np.uint64(first_sample * sample_size), np.uint64(end_sample * sample_size)):
            input_gradient[i] = 0
        for first_row in range(first_sample * out_height, end_sample * out_height, tile):
            count = min(tile, end_sample * out_height - first_row)
            width = count * out_width
            for group in range(groups):
                gather_rows(
                    gradient, rows, first_row, count, group * features, features, out_channels, out_height,
                    out_width,
                )  # fmt: skip
                matrix = weight[group * features * depth : (group + 1) * features * depth]
                np.dot(
                    matrix.reshape(features, depth).T,
                    rows[: features * width].reshape(features, width),
                    patches[: depth * width].reshape(depth, width),
                )
                fold(
                    patches, input_gradient, first_row, count, group * channels, channels, in_channels, window
                )


@compiled(parallel=True)
def _by_channels(gradient, weight, input_gradient, batch, in_channels, out_channels, groups, sizes):
    # Few output positions: the gradient at all of them, then one GEMM for each part of the input channels,
    # whose inputs no other part adds to.
    window = Window(*sizes)
    out_height, out_width = window.out_height, window.out_width
    channels, features = in_channels // groups, out_channels // groups
    taps, in_plane = window.kernel_height * window.kernel_width, window.in_height * window.in_width
    rows = batch * out_height
    depth, width = channels * taps, rows * out_width
    per_part = channels_per_part(channels, taps, LEAST_COLUMNS)
    per_block = channels_per_part(features, 1, 1)
    columns = np.empty(features * width, gradient.dtype)
    for group in range(groups):
        for block in prange((features + per_block - 1) // per_block):
            first = block * per_block
            gather_rows(
                gradient, columns[first * width :], 0, rows, group * features + first,
                min(per_block, features - first), out_channels, out_height, out_width,
            )  # fmt: skip
        for part in prange((channels + per_part - 1) // per_part):
            first = part * per_part
            count = min(per_part, channels - first)
            own = np.empty((features, count * taps), weight.dtype)
            for feature in range(features):
                source = np.uint64((group * features + feature) * depth + first * taps)
                for k in range(np.uint64(count * taps)):
                    own[feature, k] = weight[source + k]
            patches = np.empty((count * taps, width), gradient.dtype)
            np.dot(own.T, columns.reshape(features, width), patches)
            for sample in range(batch):
                start = (sample * in_channels + group * channels + first) * in_plane
                for i in range(np.uint64(start), np.uint64(start + count * in_plane)):
                    input_gradient[i] = 0
            fold(
                patches.reshape(-1), input_gradient, 0, rows, group * channels + first, count, in_channels,
                window,
            )  # fmt: skip


@compiled()
def _by_turned_kernels(gradient, weight, input_gradient, batch, in_channels, out_channels, groups, turned):
    # Strides of 1: the convolution of the padded gradient with the turned kernels.
    window = Window(*turned)
    channels, features = in_channels // groups, out_channels // groups
    taps = window.kernel_height * window.kernel_width
    steps = np.empty(features * taps, np.uint64)
    for k in range(features * taps):
        steps[k] = k // taps * channels * taps + taps - 1 - k % taps
    convolve(
        gradient, weight, steps, taps, weight[:0], input_gradient, batch, out_channels, in_channels, groups,
        window,
    )  # fmt: skip


def conv2d_vjp(
    gradient, weight, input_gradient, batch, in_channels, in_height, in_width, out_channels, out_height,
    out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
    groups,
):  # fmt: skip
    if stride_y != 1 or stride_x != 1:
        by = _by_channels if batch * out_height * out_width < FEW_TILES * LEAST_COLUMNS else _by_patches
        sizes = (
            in_height, in_width, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x,
            padding_y, padding_x, dilation_y, dilation_x,
        )  # fmt: skip
        by(gradient, weight, input_gradient, batch, in_channels, out_channels, groups, sizes)
        return
    top, left = dilation_y * (kernel_height - 1) - padding_y, dilation_x * (kernel_width - 1) - padding_x
    turned = (
        out_height, out_width, in_height, in_width, kernel_height, kernel_width, 1, 1, top, left, dilation_y,
        dilation_x,
    )  # fmt: skip
    if is_quicker(
        out_channels // groups, in_channels // groups, (in_height, in_width), (kernel_height, kernel_width),
        (1, 1), (dilation_y, dilation_x), (top, left),
    ):  # fmt: skip
        winograd(
            gradient, weight, weight[:0], input_gradient, batch, out_channels, in_channels, groups, turned,
            True,
        )  # fmt: skip
    else:
        _by_turned_kernels(gradient, weight, input_gradient, batch, in_channels, out_channels, groups, turned)


KERNEL = kernel(
    conv2d_vjp, lambda s: one_thread_per(s["batch"] * s["in_channels"] * s["in_height"] * s["in_width"])
)

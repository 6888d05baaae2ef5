"""Two-dimensional convolution: the gradients by weight and bias (paper, equation 2)."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.conv2d_geometry import BIAS, INPUT, OUTPUT, SIZES, WEIGHT
from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, Kernel, LaunchShape, array_in, array_out, scalar
from bppsa_cupy.raw_kernels.shifted import (
    STEP,
    add_products,
    group_sums,
    lane_sum,
    pack,
    padded_length,
    shifts_win,
    tap_shifts,
)
from bppsa_cupy.raw_kernels.twin import twin
from bppsa_cupy.raw_kernels.unfold import LEAST_COLUMNS, WORKERS, gather_rows, rows_per_tile, unfold

#: Threads of a block, which share the sum of one weight's gradient; the .cu text counts on it.
THREADS = 128

#: Bytes of one worker's sums by shifts, at most: about a second cache.
CACHED = 1 << 20


@twin(parallel=True)
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


@twin(parallel=True)
def _by_patches(
    input, gradient, weight_gradient, bias_gradient, batch, in_channels, in_height, in_width, out_channels,
    out_height, out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y,
    dilation_x, groups, biased,
):  # fmt: skip
    # Each worker sums over its own output rows; the workers' sums are added in their order.
    channels, features = in_channels // groups, out_channels // groups
    depth = channels * kernel_height * kernel_width
    rows = batch * out_height
    tile = rows_per_tile(depth, out_width, rows, input.itemsize, 2 * LEAST_COLUMNS)
    tiles = (rows + tile - 1) // tile
    workers = min(tiles, WORKERS)
    sums = np.zeros((workers, out_channels * depth), input.dtype)
    bias_sums = np.zeros((workers, out_channels), input.dtype)
    for worker in prange(workers):
        patches = np.empty(depth * tile * out_width, input.dtype)
        grown = np.empty(features * tile * out_width, input.dtype)
        product = np.empty((features, depth), input.dtype)
        flat = product.reshape(-1)
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
                gather_rows(
                    gradient, grown, first_row, count, group * features, features, out_channels, out_height,
                    out_width,
                )  # fmt: skip
                columns = grown[: features * width].reshape(features, width)
                np.dot(columns, patches[: depth * width].reshape(depth, width).T, product)
                total = sums[worker, group * features * depth : (group + 1) * features * depth]
                for i in range(total.size):
                    total[i] += flat[i]
                if biased:
                    for feature in range(features):
                        bias_sums[worker, group * features + feature] += columns[feature].sum()
    for i in prange(out_channels * depth):
        value = input.dtype.type(0)
        for worker in range(workers):
            value += sums[worker, i]
        weight_gradient[i] = value
    if biased:
        for channel in range(out_channels):
            value = input.dtype.type(0)
            for worker in range(workers):
                value += bias_sums[worker, channel]
            bias_gradient[channel] = value


@twin()
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


KERNEL = Kernel(
    name="conv2d_weight_gradient",
    parameters=(
        array_in("input", "real", INPUT),
        array_in("gradient", "real", OUTPUT),
        array_out("weight_gradient", "real", WEIGHT),
        array_out("bias_gradient", "real", BIAS),
        *SIZES,
        scalar("biased"),
    ),
    launch=launch,
    twin=conv2d_weight_gradient,
)

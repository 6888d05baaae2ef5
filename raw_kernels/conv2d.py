"""Two-dimensional convolution."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape, kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.convolution.indirect import (
    PACKED,
    TASKS,
    convolve,
    cuts,
    interleave,
    pack,
    padded_size,
    tap_place,
)
from bppsa_cupy.raw_kernels.twins.convolution.unfold import (
    FEW_TILES,
    LEAST_COLUMNS,
    WORKERS,
    channels_per_part,
    fold,
    gather_rows,
    rows_per_tile,
    unfold,
)
from bppsa_cupy.raw_kernels.twins.convolution.window import Window
from bppsa_cupy.raw_kernels.twins.convolution.winograd import (
    is_quicker,
    is_quicker_for_weights,
    winograd,
    winograd_weight_gradient,
)
from bppsa_cupy.raw_kernels.twins.products.panels import lanes_as_rows
from bppsa_cupy.raw_kernels.twins.products.tiles import DEPTH, ROWS, add_products, lanes_of
from bppsa_cupy.raw_kernels.twins.simd.planes import channel_sum
from bppsa_cupy.system.compiled import compiled

# ---- conv2d_forward ----


@compiled()
def _forward_by_products(input, weight, bias, output, batch, in_channels, out_channels, groups, sizes):
    window = Window(*sizes)
    depth = in_channels // groups * window.kernel_height * window.kernel_width
    steps = np.empty(depth, np.uint64)
    for k in range(depth):
        steps[k] = k
    convolve(input, weight, steps, depth, bias, output, batch, in_channels, out_channels, groups, window)


@kernel(lambda s: one_thread_per(s["batch"] * s["out_channels"] * s["out_height"] * s["out_width"]))
def conv2d_forward(
    input, weight, bias, output, batch, in_channels, in_height, in_width, out_channels, out_height,
    out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
    groups, biased,
):  # fmt: skip
    bias = bias if biased else bias[:0]
    sizes = (
        in_height, in_width, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x,
        padding_y, padding_x, dilation_y, dilation_x,
    )  # fmt: skip
    if is_quicker(
        in_channels // groups, out_channels // groups, (out_height, out_width),
        (kernel_height, kernel_width), (stride_y, stride_x), (dilation_y, dilation_x), (padding_y, padding_x),
    ):  # fmt: skip
        winograd(input, weight, bias, output, batch, in_channels, out_channels, groups, sizes, False)
    else:
        _forward_by_products(input, weight, bias, output, batch, in_channels, out_channels, groups, sizes)


# ---- conv2d_vjp ----


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
            reordered = np.empty((features, count * taps), weight.dtype)
            for feature in range(features):
                source = np.uint64((group * features + feature) * depth + first * taps)
                for k in range(np.uint64(count * taps)):
                    reordered[feature, k] = weight[source + k]
            patches = np.empty((count * taps, width), gradient.dtype)
            np.dot(reordered.T, columns.reshape(features, width), patches)
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


@kernel(lambda s: one_thread_per(s["batch"] * s["in_channels"] * s["in_height"] * s["in_width"]))
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


# ---- conv2d_weight_gradient ----

#: Bytes of the samples that the host packs at a time: those of a second cache, or so many times those of the
#: sums, which are read and written once more each time.
CACHED, OF_SUMS = 1 << 20, 8


#: Threads of a block, which share the sum of one weight's gradient; the .cu text counts on it.
THREADS = 128


@compiled(parallel=True)
def _weight_gradient_by_products(
    input, gradient, weight_gradient, bias_gradient, batch, in_channels, out_channels, groups, sizes
):
    # A product of what the weights of one output channel meet at each position, shifted views of the padded
    # input, and the gradient there, output channels innermost. Some samples at a time.
    window = Window(*sizes)
    lanes, taps = lanes_of(input.itemsize), window.kernel_height * window.kernel_width
    in_height, in_width, padding_y, padding_x = (
        window.in_height, window.in_width, window.padding_y, window.padding_x,
    )  # fmt: skip
    out_height, out_width = window.out_height, window.out_width
    channels, features = in_channels // groups, out_channels // groups
    depth, in_plane, out_plane = channels * taps, in_height * in_width, out_height * out_width
    rows, columns = padded_size(window)
    plane, size = rows * columns, in_channels * rows * columns
    vectors, tiles = (features + lanes - 1) // lanes, (depth + ROWS - 1) // ROWS
    sample_bytes = (size + groups * vectors * out_plane * lanes) * input.itemsize
    most = min(PACKED, max(CACHED, OF_SUMS * depth * out_channels * input.itemsize))
    at_once = max(1, min(batch, most // max(1, sample_bytes)))
    packed = np.empty(at_once * size, input.dtype)
    grown = np.empty(groups * vectors * at_once * out_plane * lanes, input.dtype)
    steps, shifts = np.empty(at_once * out_plane, np.uint64), np.empty(at_once * out_plane, np.uint64)
    places = np.empty(vectors, np.uint64)
    k = 0
    for sample in range(at_once):
        for y in range(out_height):
            for x in range(out_width):
                steps[k] = sample * size + y * window.stride_y * columns + x * window.stride_x
                shifts[k] = k * lanes
                k += 1
    # Few weights: the positions are cut too, and the spans' sums are added in their order.
    v_cuts, t_cuts = cuts(groups, vectors, tiles, 1)
    spans = max(1, min(TASKS // (groups * v_cuts * t_cuts), at_once * out_plane // (4 * DEPTH)))
    v_cuts, t_cuts = cuts(groups * spans, vectors, tiles, TASKS)
    slab = (vectors + v_cuts - 1) // v_cuts * lanes * ((tiles + t_cuts - 1) // t_cuts) * ROWS
    parts = groups * v_cuts * t_cuts
    sums = np.empty(spans * parts * slab, input.dtype)
    for first in range(0, max(1, batch), at_once):
        here = min(at_once, batch - first)
        positions = here * out_plane
        for v in range(vectors):
            places[v] = v * positions * lanes
        for item in prange(here * in_channels):
            image = packed[item * plane : (item + 1) * plane]
            image[:] = 0
            start = (first * in_channels + item) * in_plane
            pack(input, image, start, in_height, in_width, columns, padding_y, padding_x)
        for item in prange(groups * vectors * here):
            block, sample = item // here, item % here
            image = grown[item * out_plane * lanes : (item + 1) * out_plane * lanes]
            image[:] = 0
            feature = block % vectors * lanes
            start = ((first + sample) * out_channels + block // vectors * features + feature) * out_plane
            some = min(lanes, features - feature)
            interleave(gradient, image, start, out_plane, some, out_height, out_width, out_width, 0, 0, lanes)
        for task in prange(spans * parts):
            span, part = task // parts, task % parts
            group, v_cut, t_cut = part // t_cuts // v_cuts, part // t_cuts % v_cuts, part % t_cuts
            v_first, v_end = vectors * v_cut // v_cuts, vectors * (v_cut + 1) // v_cuts
            term = tiles * t_cut // t_cuts * ROWS
            origins = np.empty(min(depth, tiles * (t_cut + 1) // t_cuts * ROWS) - term, np.uint64)
            for k in range(origins.size):
                channel, tap = (term + k) // taps, (term + k) % taps
                origins[k] = (group * channels + channel) * plane + tap_place(tap, columns, window)
            task_sums = sums[task * slab : (task + 1) * slab]
            if first == 0:
                task_sums[:] = 0
            add_products(
                packed, origins, steps, grown[group * vectors * positions * lanes :], places[v_first:v_end],
                shifts, positions * span // spans, positions * (span + 1) // spans, task_sums,
            )  # fmt: skip
    for part in prange(parts):
        group, v_cut, t_cut = part // t_cuts // v_cuts, part // t_cuts % v_cuts, part % t_cuts
        feature = vectors * v_cut // v_cuts * lanes
        row = vectors * (v_cut + 1) // v_cuts * lanes - feature
        term = tiles * t_cut // t_cuts * ROWS
        count = min(depth, tiles * (t_cut + 1) // t_cuts * ROWS) - term
        part_sums = sums[part * slab : part * slab + count * row]
        for span in range(1, spans):
            start = np.uint64((span * parts + part) * slab)
            for k in range(np.uint64(part_sums.size)):
                part_sums[k] += sums[start + k]
        lanes_as_rows(
            part_sums, row, min(row, features - feature), count, weight_gradient,
            (group * features + feature) * depth + term, depth,
        )  # fmt: skip
    for channel in prange(bias_gradient.size):
        bias_gradient[channel] = channel_sum(gradient, batch, out_channels, out_plane, channel)


def launch(s):
    sums = s["out_channels"] * (
        s["in_channels"] // s["groups"] * s["kernel_height"] * s["kernel_width"] + s["biased"]
    )
    return LaunchShape((min(sums, MAXIMAL_GRID), 1, 1), (THREADS, 1, 1))


@kernel(launch)
def conv2d_weight_gradient(
    input, gradient, weight_gradient, bias_gradient, batch, in_channels, in_height, in_width, out_channels,
    out_height, out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y,
    dilation_x, groups, biased,
):  # fmt: skip
    bias_gradient = bias_gradient if biased else bias_gradient[:0]
    sizes = (
        in_height, in_width, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x,
        padding_y, padding_x, dilation_y, dilation_x,
    )  # fmt: skip
    if is_quicker_for_weights(
        batch, in_channels // groups, out_channels // groups, (out_height, out_width),
        (kernel_height, kernel_width), (stride_y, stride_x), (dilation_y, dilation_x), (padding_y, padding_x),
    ):  # fmt: skip
        by = winograd_weight_gradient
    else:
        by = _weight_gradient_by_products
    by(input, gradient, weight_gradient, bias_gradient, batch, in_channels, out_channels, groups, sizes)


# ---- conv2d_unfold ----


@kernel(lambda s: one_thread_per(s["in_channels"] * s["batch"] * s["out_height"] * s["out_width"]))
@compiled()
def conv2d_unfold(
    input, patches, batch, in_channels, in_height, in_width, out_height, out_width, kernel_height,
    kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
):  # fmt: skip
    window = Window(
        in_height, in_width, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x,
        padding_y, padding_x, dilation_y, dilation_x,
    )  # fmt: skip
    unfold(input, patches, 0, batch * out_height, 0, in_channels, in_channels, window)


# ---- conv2d_fold ----


@kernel(lambda s: one_thread_per(s["batch"] * s["in_channels"] * s["in_height"] * s["in_width"]))
@compiled()
def conv2d_fold(
    patches, input_gradient, batch, in_channels, in_height, in_width, out_height, out_width, kernel_height,
    kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
):  # fmt: skip
    input_gradient[:] = 0
    window = Window(
        in_height, in_width, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x,
        padding_y, padding_x, dilation_y, dilation_x,
    )  # fmt: skip
    fold(patches, input_gradient, 0, batch * out_height, 0, in_channels, in_channels, window)

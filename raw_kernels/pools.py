"""Two-dimensional pooling: maximum and average."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.convolution.unfold import inside
from bppsa_cupy.raw_kernels.twins.convolution.window import Window
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of, tile_width
from bppsa_cupy.system.compiled import compiled

# ---- max_pool2d_forward ----


@compiled(inline="always")
def _compare(input, output, indices, source, target, length, position, step):
    # Unconditional stores: the loop runs in SIMD lanes, where branches would be mispredicted.
    for k in range(length):
        value, best, index = input[source + k * step], output[target + k], indices[target + k]
        wins = (value > best) | (value != value) | (index < 0)
        output[target + k] = value if wins else best
        indices[target + k] = position + np.int32(k * step) if wins else index


@compiled(inline="always")
def _larger(value, place, best, index):
    wins = (value > best) | (value != value)
    return (value if wins else best), (np.int32(place) if wins else index)


@compiled(parallel=True)
def _by_squares(input, output, indices, planes, in_height, in_width, out_height, out_width):
    # Windows of 2 × 2 that do not overlap, and no padding: the four are compared in registers.
    for plane in prange(planes):
        start, width = np.uint64(np.int64(plane) * in_height * in_width), np.uint64(in_width)
        target = np.uint64(np.int64(plane) * out_height * out_width)
        for row in range(np.uint64(out_height)):
            first = np.uint64(2) * row * width
            for k in range(np.uint64(out_width)):
                place = first + np.uint64(2) * k
                at = start + place
                best, index = input[at], np.int32(place)
                best, index = _larger(input[at + np.uint64(1)], place + np.uint64(1), best, index)
                best, index = _larger(input[at + width], place + width, best, index)
                best, index = _larger(
                    input[at + width + np.uint64(1)], place + width + np.uint64(1), best, index
                )
                to = target + row * np.uint64(out_width) + k
                output[to] = best
                indices[to] = index


@compiled(parallel=True)
def _by_taps(input, output, indices, planes, sizes):
    # Output rows are the inner loop: each tap is compared for a whole row at once.
    window = Window(*sizes, 1, 1)
    in_height, in_width, stride_x = window.in_height, window.in_width, window.stride_x
    out_height, out_width = window.out_height, window.out_width
    for plane in prange(planes):
        for row in range(out_height):
            target = np.uint64((np.int64(plane) * out_height + row) * out_width)
            for k in range(np.uint64(out_width)):
                output[target + k] = -np.inf
                indices[target + k] = -1
            for i in range(window.kernel_height):
                y = row * window.stride_y + i - window.padding_y
                if y < 0 or y >= in_height:
                    continue
                for j in range(window.kernel_width):
                    offset = j - window.padding_x
                    first, end = inside(in_width, out_width, offset, stride_x)
                    position = np.int32(y * in_width + first * stride_x + offset)
                    source = np.uint64(np.int64(plane) * in_height * in_width + position)
                    lane, length = target + np.uint64(first), np.uint64(end - first)
                    # Constant strides become shuffles; only other ones need gathers.
                    if stride_x == 1:
                        _compare(input, output, indices, source, lane, length, position, np.uint64(1))
                    elif stride_x == 2:
                        _compare(input, output, indices, source, lane, length, position, np.uint64(2))
                    else:
                        _compare(input, output, indices, source, lane, length, position, np.uint64(stride_x))


@kernel(lambda s: one_thread_per(s["planes"] * s["out_height"] * s["out_width"]))
def max_pool2d_forward(
    input, output, indices, planes, in_height, in_width, out_height, out_width, kernel_height, kernel_width,
    stride_y, stride_x, padding_y, padding_x,
):  # fmt: skip
    taps = kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x
    inside_alone = 2 * out_height <= in_height and 2 * out_width <= in_width
    if taps == (2, 2, 2, 2, 0, 0) and inside_alone:
        _by_squares(input, output, indices, planes, in_height, in_width, out_height, out_width)
    else:
        sizes = in_height, in_width, out_height, out_width, *taps
        _by_taps(input, output, indices, planes, sizes)


# ---- max_pool2d_vjp ----


@kernel(lambda s: one_thread_per(-(-s["planes"] * s["in_height"] * s["in_width"] // 4)))
@compiled(parallel=True)
def max_pool2d_vjp(
    gradient, indices, input_gradient, planes, in_height, in_width, out_height, out_width, kernel_height,
    kernel_width, stride_y, stride_x, padding_y, padding_x,
):  # fmt: skip
    in_plane, out_plane = np.uint64(in_height * in_width), np.uint64(out_height * out_width)
    for plane in prange(planes):
        target, source = np.uint64(plane) * in_plane, np.uint64(plane) * out_plane
        for k in range(in_plane):
            input_gradient[target + k] = 0
        for k in range(out_plane):
            position = indices[source + k]
            if position >= 0:
                input_gradient[target + np.uint64(position)] += gradient[source + k]


# ---- max_pool2d_fill ----


@spans_of
@compiled()
def _span(start, end, indices, window, candidate, values, windows, batch):
    width, samples, stride = tile_width(batch), np.uint64(batch), np.uint64(windows)
    for left in range(start, end, width):
        right = min(left + width, end)
        for top in range(np.uint64(0), samples, np.uint64(LANES)):
            for sample in range(top, min(top + np.uint64(LANES), samples)):
                for entry in range(left, right):
                    maximum = indices[sample * stride + np.uint64(window[entry])]
                    hit = maximum == np.int32(candidate[entry])
                    values[entry * samples + sample] = 1 if hit else 0


@kernel(lambda s: one_thread_per(s["entries"] * s["batch"]))
@compiled()
def max_pool2d_fill(indices, window, candidate, values, windows, entries, batch):
    _span(entries * batch, entries, (indices, window, candidate, values, windows, batch))


# ---- avg_pool2d_forward ----


@compiled()
def window_extent(output, stride, padding, kernel, inputs, include_padding):
    """Positions along one axis that a window's divisor counts."""
    start = output * stride - padding
    end = min(start + kernel, inputs + padding)
    return end - start if include_padding else min(end, inputs) - max(start, 0)


@kernel(lambda s: one_thread_per(s["planes"] * s["out_height"] * s["out_width"]))
@compiled(parallel=True)
def avg_pool2d_forward(
    input, output, planes, in_height, in_width, out_height, out_width, kernel_height, kernel_width, stride_y,
    stride_x, padding_y, padding_x, count_include_pad,
):  # fmt: skip
    for plane in prange(planes):
        for row in range(out_height):
            target = np.uint64((np.int64(plane) * out_height + row) * out_width)
            for k in range(np.uint64(out_width)):
                output[target + k] = 0
            for i in range(kernel_height):
                y = row * stride_y + i - padding_y
                if y < 0 or y >= in_height:
                    continue
                for j in range(kernel_width):
                    offset = j - padding_x
                    first, end = inside(in_width, out_width, offset, stride_x)
                    position = y * in_width + first * stride_x + offset
                    source = np.uint64(np.int64(plane) * in_height * in_width + position)
                    lane, step = target + np.uint64(first), np.uint64(stride_x)
                    for k in range(np.uint64(end - first)):
                        output[lane + k] += input[source + k * step]
            down = window_extent(row, stride_y, padding_y, kernel_height, in_height, count_include_pad)
            for column in range(out_width):
                across = window_extent(column, stride_x, padding_x, kernel_width, in_width, count_include_pad)
                output[target + np.uint64(column)] /= output.dtype.type(down * across)


# ---- avg_pool2d_vjp ----


@kernel(lambda s: one_thread_per(s["planes"] * s["in_height"] * s["in_width"]))
@compiled(parallel=True)
def avg_pool2d_vjp(
    gradient, input_gradient, planes, in_height, in_width, out_height, out_width, kernel_height, kernel_width,
    stride_y, stride_x, padding_y, padding_x, count_include_pad,
):  # fmt: skip
    for plane in prange(planes):
        base = np.uint64(plane) * np.uint64(in_height * in_width)
        for k in range(np.uint64(in_height * in_width)):
            input_gradient[base + k] = 0
        shares = np.empty(out_width, gradient.dtype)
        for row in range(out_height):
            source = np.uint64((np.int64(plane) * out_height + row) * out_width)
            down = window_extent(row, stride_y, padding_y, kernel_height, in_height, count_include_pad)
            for column in range(out_width):
                across = window_extent(column, stride_x, padding_x, kernel_width, in_width, count_include_pad)
                shares[column] = gradient[source + np.uint64(column)] / gradient.dtype.type(down * across)
            for i in range(kernel_height):
                y = row * stride_y + i - padding_y
                if y < 0 or y >= in_height:
                    continue
                # Right taps first, so that every input adds its windows in the order of the outputs.
                for j in range(kernel_width - 1, -1, -1):
                    offset = j - padding_x
                    first, end = inside(in_width, out_width, offset, stride_x)
                    target = base + np.uint64(y * in_width + first * stride_x + offset)
                    lane, step = np.uint64(first), np.uint64(stride_x)
                    for k in range(np.uint64(end - first)):
                        input_gradient[target + k * step] += shares[lane + k]

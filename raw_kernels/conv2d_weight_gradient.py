"""Two-dimensional convolution: the gradients by weight and bias (paper, equation 2)."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape, kernel
from bppsa_cupy.raw_kernels.twins.indirect import PACKED, TASKS, cuts, interleave
from bppsa_cupy.raw_kernels.twins.planes import channel_sum
from bppsa_cupy.raw_kernels.twins.tiles import DEPTH, ROWS, add_products, lanes_of
from bppsa_cupy.raw_kernels.twins.unfold import gather_rows, inside
from bppsa_cupy.system.compiled import compiled

#: Threads of a block, which share the sum of one weight's gradient; the .cu text counts on it.
THREADS = 128

#: Multiply-adds in the time that placing one element of a patch takes.
PATCH_COST = 16


@compiled()
def _interleave_terms(
    x, packed, first, terms, lanes, in_height, in_width, out_height, out_width, kernel_height, kernel_width,
    stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x, sample,
):  # fmt: skip
    # What the terms (channel and tap) from `first` on see of a sample, as (out_height, out_width, lanes).
    taps = kernel_height * kernel_width
    for lane in range(terms):
        channel, tap = (first + lane) // taps, (first + lane) % taps
        offset = tap % kernel_width * dilation_x - padding_x
        start, end = inside(in_width, out_width, offset, stride_x)
        for row in range(out_height):
            y = row * stride_y + tap // kernel_width * dilation_y - padding_y
            if 0 <= y < in_height:
                source = np.uint64(
                    sample + (channel * in_height + y) * in_width + start * stride_x + offset
                )
                target = np.uint64((row * out_width + start) * lanes + lane)
                for k in range(np.uint64(end - start)):
                    packed[target + k * np.uint64(lanes)] = x[source + k * np.uint64(stride_x)]


@compiled(parallel=True)
def _sum_products(
    input, gradient, weight_gradient, batch, in_channels, in_height, in_width, out_channels, out_height,
    out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
    groups, by_terms,
):  # fmt: skip
    # A product of the gradient (features, positions) with what each weight meets there. Its vectors are
    # input channels at one tap, of the padded input with channels innermost; where there are few channels,
    # they are terms (channel and tap), each copied for itself.
    lanes, taps = lanes_of(input.itemsize), kernel_height * kernel_width
    channels, features = in_channels // groups, out_channels // groups
    depth, out_plane = channels * taps, out_height * out_width
    if by_terms:
        rows, columns, step_y, step_x, views = out_height, out_width, 1, 1, 1
        items = depth
    else:
        rows = (out_height - 1) * stride_y + dilation_y * (kernel_height - 1) + 1
        columns = (out_width - 1) * stride_x + dilation_x * (kernel_width - 1) + 1
        step_y, step_x, views, items = stride_y, stride_x, taps, channels
    blocks = (items + lanes - 1) // lanes
    vectors, tiles, size = blocks * views, (features + ROWS - 1) // ROWS, rows * columns * lanes
    at_once = max(1, min(batch, PACKED // max(1, groups * blocks * size * input.itemsize)))
    v_cuts, f_cuts = cuts(groups, vectors, tiles)
    # Few weights: the positions are cut too, and the spans' sums are added in their order.
    spans = max(1, min(TASKS // (groups * v_cuts * f_cuts), at_once * out_plane // (4 * DEPTH)))
    row, count = vectors * lanes, tiles * ROWS
    sums = np.zeros(spans * groups * count * row, input.dtype)
    packed = np.empty(groups * blocks * at_once * size, input.dtype)
    grown = np.empty(out_channels * at_once * out_plane, input.dtype)
    shifts, places = np.empty(at_once * out_plane, np.uint64), np.empty(vectors, np.uint64)
    for k in range(at_once * out_plane):
        sample, position = k // out_plane, k % out_plane
        y, x = position // out_width * step_y, position % out_width * step_x
        shifts[k] = sample * size + (y * columns + x) * lanes
    steps = np.arange(at_once * out_plane).astype(np.uint64)
    for first in range(0, batch, at_once):
        here = min(at_once, batch - first)
        positions = here * out_plane
        for v in range(vectors):
            tap = v % views
            reach = tap // kernel_width * dilation_y * columns + tap % kernel_width * dilation_x
            places[v] = v // views * here * size + reach * lanes
        for item in prange(groups * blocks * here):
            group, block, sample = item // here // blocks, item // here % blocks, item % here
            own = packed[item * size : (item + 1) * size]
            own[:] = 0
            start = ((first + sample) * in_channels + group * channels) * in_height * in_width
            some = min(lanes, items - block * lanes)
            if by_terms:
                _interleave_terms(
                    input, own, block * lanes, some, lanes, in_height, in_width, out_height, out_width,
                    kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y,
                    dilation_x, start,
                )  # fmt: skip
            else:
                plane = in_height * in_width
                interleave(
                    input, own, start + block * lanes * plane, plane, some, in_height, in_width, rows,
                    columns, padding_y, padding_x, lanes,
                )  # fmt: skip
        for channel in prange(out_channels):
            gather_rows(
                gradient, grown[channel * positions :], first * out_height, here * out_height, channel, 1,
                out_channels, out_height, out_width,
            )  # fmt: skip
        for task in prange(spans * groups * v_cuts * f_cuts):
            f_cut, rest = task % f_cuts, task // f_cuts
            v_cut, rest = rest % v_cuts, rest // v_cuts
            group, span = rest % groups, rest // groups
            v_first, v_end = vectors * v_cut // v_cuts, vectors * (v_cut + 1) // v_cuts
            f_first = tiles * f_cut // f_cuts * ROWS
            target = ((span * groups + group) * count + f_first) * row + v_first * lanes
            add_products(
                grown, (group * features + f_first) * positions, positions,
                min(features, tiles * (f_cut + 1) // f_cuts * ROWS) - f_first, steps,
                packed[group * blocks * here * size :], places[v_first:v_end], shifts,
                positions * span // spans, positions * (span + 1) // spans, sums[target:], row,
            )  # fmt: skip
    for channel in prange(out_channels):
        group, feature = channel // features, channel % features
        for span in range(spans):
            start = np.uint64(((span * groups + group) * count + feature) * row)
            for k in range(np.uint64(depth)):
                item, view = k // np.uint64(views), k % np.uint64(views)
                lane = item % np.uint64(lanes)
                place = start + ((item - lane) * np.uint64(views)) + view * np.uint64(lanes) + lane
                target = np.uint64(channel * depth) + k
                if span == 0:
                    weight_gradient[target] = sums[place]
                else:
                    weight_gradient[target] += sums[place]


@compiled(parallel=True)
def _sum_gradient(gradient, bias_gradient, batch, channels, positions):
    for channel in prange(channels):
        bias_gradient[channel] = channel_sum(gradient, batch, channels, positions, channel)


@compiled()
def conv2d_weight_gradient(
    input, gradient, weight_gradient, bias_gradient, batch, in_channels, in_height, in_width, out_channels,
    out_height, out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y,
    dilation_x, groups, biased,
):  # fmt: skip
    channels, lanes = in_channels // groups, lanes_of(input.itemsize)
    terms = channels * kernel_height * kernel_width
    by_channels = (channels + lanes - 1) // lanes * lanes / channels
    by_terms = (terms + lanes - 1) // lanes * lanes / terms + PATCH_COST * groups / out_channels
    _sum_products(
        input, gradient, weight_gradient, batch, in_channels, in_height, in_width, out_channels, out_height,
        out_width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y,
        dilation_x, groups, by_terms < by_channels,
    )  # fmt: skip
    if biased:
        _sum_gradient(gradient, bias_gradient, batch, out_channels, out_height * out_width)


def launch(s):
    sums = s["out_channels"] * (
        s["in_channels"] // s["groups"] * s["kernel_height"] * s["kernel_width"] + s["biased"]
    )
    return LaunchShape((min(sums, MAXIMAL_GRID), 1, 1), (THREADS, 1, 1))


KERNEL = kernel(conv2d_weight_gradient, launch)

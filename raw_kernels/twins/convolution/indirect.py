"""Convolution on the host as a product of the weights with shifted views of the packed input.

The input is copied once, with its padding, so that the vector of a term (channel and tap) for some outputs
lies a constant shift from that of any other term (`tiles`). Three ways to place outputs in vectors:

BY_ROWS     neighbours of an output row; no element is copied twice. For long rows and a stride of 1.
BY_SAMPLES  the same position of neighbouring samples, the packed input being batch innermost. For large
            batches; any stride.
BY_PATCHES  neighbours in the matrix of unfolded patches, each element copied once a tap. For all else.

All give the same results to the bit.
"""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.twins.convolution.unfold import unfold
from bppsa_cupy.raw_kernels.twins.products.tiles import ROWS, add_products, lanes_of
from bppsa_cupy.system.compiled import compiled, part

BY_ROWS, BY_SAMPLES, BY_PATCHES = 0, 1, 2

#: Multiply-adds in the time that placing one element takes, by samples and by patches (measured).
SAMPLE_COST, PATCH_COST = 2, 150

#: Bytes of packed input, at most, and of patches, which a second cache should hold; at least one unit of it
#: (a sample, a vector of samples, an output row).
PACKED, PATCHED = 1 << 23, 1 << 19

#: Vectors and tiles of rows of one task's sums, at most (about a quarter of a second cache), and how many
#: tasks there are at least, where there is so much work.
TASK_VECTORS, TASK_TILES, TASKS = 64, 11, 32


@compiled()
def choose_way(batch, features, width, stride_x, lanes):
    """The way that wastes least: lanes past the end of what is placed in vectors, and copies."""
    by_samples = (batch + lanes - 1) // lanes * lanes / batch * (1 + SAMPLE_COST / features)
    by_patches = 1 + PATCH_COST / features
    by_rows = (width + lanes - 1) // lanes * lanes / width if stride_x == 1 else np.inf
    if by_rows <= min(by_samples, by_patches):
        return BY_ROWS
    return BY_SAMPLES if by_samples <= by_patches else BY_PATCHES


@compiled()
def cuts(parts, vectors, tiles, tasks):
    """Into how many tasks the vectors and the tiles of rows of each of `parts` products are cut: small
    enough, and `tasks` in all at least where there are so many tiles."""
    v_cuts = (vectors + TASK_VECTORS - 1) // TASK_VECTORS
    f_cuts = (tasks + parts * v_cuts - 1) // (parts * v_cuts)
    return v_cuts, min(max(f_cuts, (tiles + TASK_TILES - 1) // TASK_TILES), tiles)


@compiled()
def padded_size(window):
    """Rows and columns of the padded plane that the taps see."""
    rows = (window.out_height - 1) * window.stride_y + window.dilation_y * (window.kernel_height - 1) + 1
    columns = (window.out_width - 1) * window.stride_x + window.dilation_x * (window.kernel_width - 1) + 1
    return rows, columns


@compiled()
def tap_place(tap, columns, window):
    """Where the first output's tap lies in the padded plane."""
    down, right = tap // window.kernel_width, tap % window.kernel_width
    return down * window.dilation_y * columns + right * window.dilation_x


@compiled()
def pack(x, packed, first, height, width, columns, top, left):
    """Copy the plane (height, width) from position `first` of x on into zeros of (rows, columns), `top` rows
    down and `left` columns right. What falls outside is left out."""
    start, end, rows = max(0, -left), min(width, columns - left), packed.size // columns
    for y in range(max(0, -top), min(height, rows - top)):
        source = np.uint64(first + y * width + start)
        target = np.uint64((y + top) * columns + left + start)
        for k in range(np.uint64(max(0, end - start))):
            packed[target + k] = x[source + k]


@compiled()
def interleave(x, packed, first, apart, count, height, width, columns, top, left, lanes):
    """As `pack`, of `count` planes, `apart` elements apart, into zeros of (rows, columns, lanes)."""
    start, end, rows = max(0, -left), min(width, columns - left), packed.size // (columns * lanes)
    for y in range(max(0, -top), min(height, rows - top)):
        for lane in range(count):
            source = np.uint64(first + lane * apart + y * width + start)
            target = np.uint64(((y + top) * columns + left + start) * lanes + lane)
            for k in range(np.uint64(max(0, end - start))):
                packed[target + k * np.uint64(lanes)] = x[source + k]


@compiled()
def _write_rows(sums, row, left, right, y, first, width, lanes, shift):
    """Vectors left ... right - 1 of an output plane, ceil(width / lanes) of them a row."""
    in_row = (width + lanes - 1) // lanes
    for v in range(left, right):
        column = v % in_row * lanes
        target, source = np.uint64(first + v // in_row * width + column), np.uint64(row + (v - left) * lanes)
        for k in range(np.uint64(min(lanes, width - column))):
            y[target + k] = sums[source + k] + shift


@compiled()
def _write_samples(sums, row, left, right, y, first, sample_size, samples, lanes, shift):
    """Positions left ... right - 1 of the planes of `samples` samples."""
    for sample in range(samples):
        target, source = np.uint64(first + sample * sample_size + left), np.uint64(row + sample)
        for k in range(np.uint64(right - left)):
            y[target + k] = sums[source + k * np.uint64(lanes)] + shift


@compiled()
def _write_patches(sums, row, start, end, y, feature, features, plane, shift):
    """Positions start ... end - 1 of one feature, counted over all samples."""
    position = start
    while position < end:
        sample = position // plane
        count = min(end, (sample + 1) * plane) - position
        target = np.uint64((sample * features + feature) * plane + position - sample * plane)
        source = np.uint64(row + position - start)
        for k in range(np.uint64(count)):
            y[target + k] = sums[source + k] + shift
        position += count


@part(parallel=True)
def convolve(x, weight, steps, row, bias, y, batch, in_channels, out_channels, groups, window):
    """y (batch, out_channels, out_height, out_width) of x (batch, in_channels, in_height, in_width).

    weight  of feature f of a group and term k (channel and tap) at f * row + steps[k] of the group's weights
    bias    (out_channels), or empty
    window  whose padding may be negative
    """
    lanes, taps = lanes_of(x.itemsize), window.kernel_height * window.kernel_width
    in_height, in_width, top, left = window.in_height, window.in_width, window.padding_y, window.padding_x
    out_height, out_width = window.out_height, window.out_width
    stride_y, stride_x = window.stride_y, window.stride_x
    channels, features = in_channels // groups, out_channels // groups
    depth, out_plane, group_size = channels * taps, out_height * out_width, weight.size // groups
    rows, columns = padded_size(window)
    way = choose_way(batch, features, out_width, stride_x, lanes)
    # A unit of packed input: a sample, a vector of samples, or an output row; how many there are; its size.
    vector = 1 if way == BY_ROWS else lanes
    plane = rows * columns * vector
    units, size, most = (batch + vector - 1) // vector, in_channels * plane, PACKED
    if way == BY_PATCHES:
        units, size, most = batch * out_height, in_channels * taps * out_width, PATCHED
    at_once = max(1, min(units, most // max(1, size * x.itemsize)))
    packed = np.empty(at_once * size + lanes, x.dtype)
    shifts = np.empty(depth, np.uint64)
    tiles = (features + ROWS - 1) // ROWS
    for first in range(0, units, at_once):
        here = min(at_once, units - first)
        if way == BY_PATCHES:
            width = here * out_width
            for channel in prange(in_channels):
                unfold(x, packed[channel * taps * width :], first, here, channel, 1, in_channels, window)
            packed[depth * groups * width :] = 0
            parts, vectors, step = 1, (width + lanes - 1) // lanes, depth * width
        else:
            for item in prange(here * in_channels):
                unit, channel = item // in_channels, item % in_channels
                sample = (first + unit) * vector
                image = packed[item * plane : (item + 1) * plane]
                image[:] = 0
                start = (sample * in_channels + channel) * in_height * in_width
                if way == BY_ROWS:
                    pack(x, image, start, in_height, in_width, columns, top, left)
                else:
                    interleave(
                        x, image, start, in_channels * in_height * in_width, min(lanes, batch - sample),
                        in_height, in_width, columns, top, left, lanes,
                    )  # fmt: skip
            packed[here * size :] = 0
            in_row = (out_width + lanes - 1) // lanes if way == BY_ROWS else out_width
            parts, vectors, step = here, out_height * in_row, channels * plane
        places = np.empty(vectors, np.uint64)
        for v in range(vectors):
            if way == BY_PATCHES:
                places[v] = v * lanes
            elif way == BY_SAMPLES:
                places[v] = (v // in_row * stride_y * columns + v % in_row * stride_x) * lanes
            else:
                places[v] = v // in_row * stride_y * columns + v % in_row * lanes
        for k in range(depth):
            if way == BY_PATCHES:
                shifts[k] = k * width
            else:
                channel, tap = k // taps, k % taps
                shifts[k] = channel * plane + tap_place(tap, columns, window) * vector
        v_cuts, f_cuts = cuts(parts * groups, vectors, tiles, TASKS)
        for task in prange(parts * groups * v_cuts * f_cuts):
            f_cut, rest = task % f_cuts, task // f_cuts
            v_cut, rest = rest % v_cuts, rest // v_cuts
            group, unit = rest % groups, rest // groups
            v_first, v_end = vectors * v_cut // v_cuts, vectors * (v_cut + 1) // v_cuts
            f_first = tiles * f_cut // f_cuts * ROWS
            count = min(features, tiles * (f_cut + 1) // f_cuts * ROWS) - f_first
            length = (v_end - v_first) * lanes
            sums = np.zeros((count + ROWS - 1) // ROWS * ROWS * length, x.dtype)
            origins = np.empty(count, np.uint64)
            for f in range(count):
                origins[f] = group * group_size + (f_first + f) * row
            add_products(
                weight, origins, steps, packed[unit * size + group * step :], places[v_first:v_end], shifts,
                0, depth, sums,
            )  # fmt: skip
            for f in range(count):
                feature = group * features + f_first + f
                shift = bias[feature] if bias.size else y.dtype.type(0)
                if way == BY_PATCHES:
                    start = first * out_width
                    _write_patches(
                        sums, f * length, start + v_first * lanes, start + min(width, v_end * lanes), y,
                        feature, out_channels, out_plane, shift,
                    )  # fmt: skip
                else:
                    sample = (first + unit) * vector
                    target = (sample * out_channels + feature) * out_plane
                    if way == BY_SAMPLES:
                        _write_samples(
                            sums, f * length, v_first, v_end, y, target, out_channels * out_plane,
                            min(lanes, batch - sample), lanes, shift,
                        )  # fmt: skip
                    else:
                        _write_rows(sums, f * length, v_first, v_end, y, target, out_width, lanes, shift)

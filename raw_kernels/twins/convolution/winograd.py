"""Convolution on the host by Winograd's minimal filtering F(2×2, 3×3) (Lavin and Gray 2016, section 4.1).

For kernels of 3 × 3 and strides and dilations of 1. A tile of 2 × 2 outputs of a channel takes 16 products a
channel of the input, in place of 36: Y = Aᵀ [Σ_c (G g_c Gᵀ) ⊙ (Bᵀ d_c B)] A of the tile's 4 × 4 inputs d and
the kernel g. The sums over channels are 16 matrix products, of vectors of tiles (`tiles`).

The lanes of a vector are the same tile of WIDE samples, or, of fewer samples, neighbours among the tiles of a
plane whose cells hold all of them. In exact arithmetic the result is the convolution's. In floating point the
transforms add four inputs either way before a product is formed, and a sum has a ninth of the terms: errors
in float32 are no larger than those of direct sums. NaN and infinity reach all four outputs of a tile.

Law: a tile's outputs are made by the same operations in the same order on its own lane, so their bits depend
neither on the batch that it is in nor on the number of threads.
"""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.twins.convolution.indirect import PACKED, TASKS
from bppsa_cupy.raw_kernels.twins.convolution.taps import Cells, pack_cells, unpack_cells
from bppsa_cupy.raw_kernels.twins.convolution.window import Window
from bppsa_cupy.raw_kernels.twins.products.panels import aligned, lanes_as_rows
from bppsa_cupy.raw_kernels.twins.products.tiles import ROWS, add_products, lanes_of
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, load, never_inlined, number, store
from bppsa_cupy.raw_kernels.twins.simd.planes import channel_sum
from bppsa_cupy.raw_kernels.twins.simd.squares import put_lines, put_square
from bppsa_cupy.system.compiled import compiled

#: Positions of an output plane, and channels either way, from which on it is the quicker one (measured).
LEAST_POSITIONS, LEAST_CHANNELS = 64, 8
LEAST_POSITIONS_OF_WEIGHTS, LEAST_CHANNELS_OF_WEIGHTS = 16, 32

#: Samples of a cell whose vectors are samples, of which the last ones may be missing, and how many are there
#: at least.
WIDE, LEAST_SAMPLES = LANES, 12

#: Bytes of a task's transformed inputs and of its sums, about, and vectors of them at least.
BLOCK, LEAST_VECTORS = 1 << 19, 3

#: Products a tile.
TERMS = 16

#: Tiles of a row and features of a task's sums of gradients, at most, and bytes of all sums, about.
MOST_TILES, MOST_FEATURES, SUMS = 16, 64, 1 << 23


def is_quicker(channels, features, size, kernel, stride, dilation, padding):
    """Whether this way serves a convolution, by its geometry alone: channels either way of a group, and
    pairs; `padding` before the input."""
    return (
        _fits(kernel, stride, dilation, padding)
        and size[0] * size[1] >= LEAST_POSITIONS
        and min(channels, features) >= LEAST_CHANNELS
    )


def is_quicker_for_weights(batch, channels, features, size, kernel, stride, dilation, padding):
    """Whether this way serves the gradient by the kernels, which fills vectors with samples."""
    return (
        _fits(kernel, stride, dilation, padding)
        and 4 * batch >= 3 * WIDE * ((batch + WIDE - 1) // WIDE) > 0
        and size[0] * size[1] >= LEAST_POSITIONS_OF_WEIGHTS
        and min(channels, features) >= LEAST_CHANNELS_OF_WEIGHTS
    )


def _fits(kernel, stride, dilation, padding):
    return kernel == (3, 3) and stride == dilation == (1, 1) and 0 <= min(padding) <= max(padding) <= 2


@compiled()
def _filtered(d0, d1, d2, d3):
    """Bᵀ d"""
    return d0 - d2, d1 + d2, d2 - d1, d1 - d3


@compiled()
def _transform_kernels(weight, first, inner, turned, kernels, place, term):
    """kernels[place + k term + c] = (G g_c Gᵀ)_k of the kernels of one outer channel, weight[first + 9 c …],
    for c < inner; whole vectors of them are written."""
    never_inlined()
    taps = np.zeros(9 * LANES, weight.dtype)
    for start in range(0, inner, LANES):
        for c in range(min(LANES, inner - start)):
            source = np.uint64(first + (start + c) * 9)
            for tap in range(np.uint64(9)):
                to = np.uint64(8) - tap if turned else tap
                taps[to * np.uint64(LANES) + np.uint64(c)] = weight[source + tap]
        half = number(load(taps, np.uint64(0)), 0.5)
        for row in range(4):
            # The row of G g: its columns 0, 1, 2.
            column0 = _row_of_kernel(taps, row, 0, half)
            column1 = _row_of_kernel(taps, row, 1, half)
            column2 = _row_of_kernel(taps, row, 2, half)
            outer, middle = (column0 + column2) * half, column1 * half
            target = np.uint64(place + row * 4 * term + start)
            store(kernels, target, column0)
            store(kernels, target + np.uint64(term), outer + middle)
            store(kernels, target + np.uint64(2 * term), outer - middle)
            store(kernels, target + np.uint64(3 * term), column2)


@compiled()
def _row_of_kernel(taps, row, column, half):
    """(G g)[row, column]"""
    above = load(taps, np.uint64(column * LANES))
    below = load(taps, np.uint64((6 + column) * LANES))
    if row == 0:
        return above
    if row == 3:
        return below
    middle = load(taps, np.uint64((3 + column) * LANES)) * half
    outer = (above + below) * half
    return outer + middle if row == 1 else outer - middle


@compiled()
def _transform_inputs(packed, places, downs, rights, out, start, apart):
    """out[start + k apart + v LANES …] = (Bᵀ d B)_k of the tiles of vector v, whose inputs are at
    places[v] + downs[i] + rights[j]."""
    never_inlined()
    for v in range(np.uint64(places.size)):
        first = places[v]
        a0, a1, a2, a3 = _input_row(packed, first + downs[0], rights)
        b0, b1, b2, b3 = _input_row(packed, first + downs[1], rights)
        c0, c1, c2, c3 = _input_row(packed, first + downs[2], rights)
        d0, d1, d2, d3 = _input_row(packed, first + downs[3], rights)
        target, step = np.uint64(start) + v * np.uint64(LANES), np.uint64(apart)
        _put_column(out, target, step, a0, b0, c0, d0)
        _put_column(out, target + step, step, a1, b1, c1, d1)
        _put_column(out, target + np.uint64(2) * step, step, a2, b2, c2, d2)
        _put_column(out, target + np.uint64(3) * step, step, a3, b3, c3, d3)


@compiled()
def _input_row(packed, place, rights):
    return _filtered(
        load(packed, place + rights[0]), load(packed, place + rights[1]),
        load(packed, place + rights[2]), load(packed, place + rights[3]),
    )  # fmt: skip


@compiled()
def _put_column(out, target, step, x0, x1, x2, x3):
    y0, y1, y2, y3 = _filtered(x0, x1, x2, x3)
    row = np.uint64(4) * step
    store(out, target, y0)
    store(out, target + row, y1)
    store(out, target + np.uint64(2) * row, y2)
    store(out, target + np.uint64(3) * row, y3)


@compiled()
def _transform_outputs(sums, start, apart, results, places, down, right):
    """results[places[v] + i down + j right …] = (Aᵀ m A)_ij of the products at sums[start + k apart +
    v LANES …]."""
    never_inlined()
    for v in range(np.uint64(places.size)):
        source, step = np.uint64(start) + v * np.uint64(LANES), np.uint64(apart)
        a0, b0 = _sums_of_column(sums, source, step)
        a1, b1 = _sums_of_column(sums, source + step, step)
        a2, b2 = _sums_of_column(sums, source + np.uint64(2) * step, step)
        a3, b3 = _sums_of_column(sums, source + np.uint64(3) * step, step)
        target, d, r = places[v], np.uint64(down), np.uint64(right)
        store(results, target, a0 + a1 + a2)
        store(results, target + r, a1 - a2 - a3)
        store(results, target + d, b0 + b1 + b2)
        store(results, target + d + r, b1 - b2 - b3)


@compiled()
def _sums_of_column(sums, source, step):
    row = np.uint64(4) * step
    m0, m1 = load(sums, source), load(sums, source + row)
    m2, m3 = load(sums, source + np.uint64(2) * row), load(sums, source + np.uint64(3) * row)
    return m0 + m1 + m2, m1 - m2 - m3


@compiled()
def _pack_phases(x, source, apart, samples, height, width, packed, plane, pitch, top, left):
    """Copy one plane of `samples` samples, `apart` from one another in x, into the four phases by rows and
    columns of the padded plane, zeros elsewhere; `samples` to a cell."""
    packed[: 4 * plane] = 0
    for y in range(height):
        row = (y + top) % 2 * 2 * plane + (y + top) // 2 * pitch * samples
        for sample in range(samples):
            place = np.uint64(source + sample * apart + y * width)
            for x_ in range(np.uint64(width)):
                column = x_ + np.uint64(left)
                cell = column % np.uint64(2) * np.uint64(plane) + column // np.uint64(2) * np.uint64(samples)
                packed[np.uint64(row + sample) + cell] = x[place + x_]


@compiled(parallel=True)
def winograd(x, weight, bias, y, batch, in_channels, out_channels, groups, sizes, turned):
    """y (batch, out_channels, out_height, out_width) of x (batch, in_channels, in_height, in_width).

    weight  (out_channels, in_channels / groups, 3, 3), or, where the kernels are `turned`,
            (in_channels, out_channels / groups, 3, 3)
    bias    (out_channels), or empty
    sizes   of a Window of 3 × 3, with padding of 0 to 2
    """
    window = Window(*sizes)
    in_height, in_width, top, left = window.in_height, window.in_width, window.padding_y, window.padding_x
    out_height, out_width = window.out_height, window.out_width
    channels, features = in_channels // groups, out_channels // groups
    inner, outer = (features, channels) if turned else (channels, features)
    # Of each outer channel 16 rows; an odd number of vectors each, so that they share no set of a cache.
    term = (inner + LANES - 1) // LANES * LANES
    apart = TERMS * term + LANES
    kernels = aligned(groups * outer * apart, x)
    for item in prange(groups * outer):
        _transform_kernels(weight, item * inner * 9, inner, turned, kernels, item * apart, term)
    feature_step, channel_step = (1, apart) if turned else (apart, 1)
    origins, steps = np.empty(features, np.uint64), np.empty(channels, np.uint64)
    for f in range(features):
        origins[f] = f * feature_step
    for c in range(channels):
        steps[c] = c * channel_step
    tiles_y, tiles_x = (out_height + 1) // 2, (out_width + 1) // 2
    rest = batch % WIDE
    full = batch // WIDE + (rest >= LEAST_SAMPLES)
    first_sample = 0
    for kind in range(2):
        by_samples = kind == 0
        units = full if by_samples else np.int64(0 < rest < LEAST_SAMPLES)
        wide = WIDE if by_samples else rest
        downs, rights = np.empty(4, np.uint64), np.empty(4, np.uint64)
        if by_samples:
            pitch = 2 * tiles_x + 2
            plane = (2 * tiles_y + 2) * pitch * wide
            size, vectors = plane, tiles_y * tiles_x
            out_pitch, down, right = 2 * tiles_x, 2 * tiles_x * wide, wide
        else:
            pitch = tiles_x + 1
            plane = (tiles_y + 1) * pitch * wide
            size, vectors = 4 * plane, (((tiles_y - 1) * pitch + tiles_x) * wide + LANES - 1) // LANES
            out_pitch, down, right = pitch, 2 * vectors * LANES, vectors * LANES
        places, targets = np.empty(vectors, np.uint64), np.empty(vectors, np.uint64)
        for i in range(4):
            if by_samples:
                downs[i], rights[i] = i * pitch * wide, i * wide
            else:
                downs[i] = i % 2 * 2 * plane + i // 2 * pitch * wide
                rights[i] = i % 2 * plane + i // 2 * wide
        for v in range(vectors):
            if by_samples:
                places[v] = (v // tiles_x * 2 * pitch + v % tiles_x * 2) * wide
                targets[v] = (v // tiles_x * 4 * tiles_x + v % tiles_x * 2) * wide
            else:
                places[v] = targets[v] = v * LANES
        out_size = 4 * vectors * LANES
        bytes_of_one = (in_channels * size + out_channels * out_size) * x.itemsize
        at_once = max(1, min(units, PACKED // max(1, bytes_of_one)))
        packed = aligned(at_once * in_channels * size + LANES, x)
        results = aligned(at_once * out_channels * out_size, x)
        high = (features + ROWS - 1) // ROWS * ROWS
        block = max(LEAST_VECTORS, BLOCK // (TERMS * (channels + high) * LANES * x.itemsize))
        blocks = (vectors + block - 1) // block
        for first in range(0, units, at_once):
            here = min(at_once, units - first)
            for item in prange(here * in_channels):
                unit, channel = item // in_channels, item % in_channels
                sample = first_sample + (first + unit) * wide
                image = packed[item * size : (item + 1) * size]
                source = (sample * in_channels + channel) * in_height * in_width
                spacing, some = in_channels * in_height * in_width, min(wide, batch - sample)
                if by_samples:
                    image[:] = 0
                    pack_cells(
                        x, source, spacing, some, in_height, in_width, image, top * pitch + left,
                        Cells(wide, pitch, 0, 0, 1, 1),
                    )  # fmt: skip
                else:
                    _pack_phases(
                        x, source, spacing, some, in_height, in_width, image, plane, pitch, top, left
                    )
            packed[here * in_channels * size :] = 0
            for task in prange(here * groups * blocks):
                unit, group, cut = task // (groups * blocks), task // blocks % groups, task % blocks
                v_first, v_end = vectors * cut // blocks, vectors * (cut + 1) // blocks
                width = (v_end - v_first) * LANES
                seen = aligned(TERMS * channels * width, x)
                sums = aligned(TERMS * high * width, x)
                sums[:] = 0
                for c in range(channels):
                    start = (unit * in_channels + group * channels + c) * size
                    _transform_inputs(
                        packed[start:], places[v_first:v_end], downs, rights, seen, c * width,
                        channels * width,
                    )  # fmt: skip
                lanes = lanes_of(x.itemsize)
                across, shifts = np.empty(width // lanes, np.uint64), np.empty(channels, np.uint64)
                for v in range(across.size):
                    across[v] = v * lanes
                for c in range(channels):
                    shifts[c] = c * width
                for k in range(TERMS):
                    add_products(
                        kernels[group * outer * apart + k * term :], origins, steps,
                        seen[k * channels * width :], across, shifts, 0, channels,
                        sums[k * high * width : (k + 1) * high * width],
                    )  # fmt: skip
                for f in range(features):
                    start = (unit * out_channels + group * features + f) * out_size
                    _transform_outputs(
                        sums, f * width, high * width, results[start : start + out_size],
                        targets[v_first:v_end], down, right,
                    )  # fmt: skip
            for item in prange(here * out_channels):
                unit, channel = item // out_channels, item % out_channels
                sample = first_sample + (first + unit) * wide
                result = results[item * out_size : (item + 1) * out_size]
                target = (sample * out_channels + channel) * out_height * out_width
                spacing, some = out_channels * out_height * out_width, min(wide, batch - sample)
                shift = bias[channel] if bias.size else y.dtype.type(0)
                cells = Cells(wide, out_pitch, 0, 0, 1, 1)
                if by_samples:
                    unpack_cells(
                        result, out_height, out_width, cells, shift, y, target, spacing, some, out_width, 1
                    )
                else:
                    for phase in range(4):
                        i, j = phase // 2, phase % 2
                        unpack_cells(
                            result[phase * vectors * LANES :], (out_height - i + 1) // 2,
                            (out_width - j + 1) // 2, cells, shift, y, target + i * out_width + j, spacing,
                            some, 2 * out_width, 2,
                        )  # fmt: skip
        first_sample += units * wide


# ---- the gradient by the kernels ----


@compiled()
def _spread_gradient(y0, y1):
    """A y"""
    return y0, y0 + y1, y0 - y1, -y1


@compiled()
def _gradient_rows(gradient, start, channel_size, features, width, columns, rows):
    """rows[column LANES + f] = gradient[start + f channel_size + column] for f < features ≤ LANES, zeros from
    `width` columns to `columns`."""
    never_inlined()
    wide, unused = np.uint64(lanes_of(gradient.itemsize)), np.zeros(LANES, gradient.dtype)
    rows[width * LANES : columns * LANES] = 0
    spacing, end = np.uint64(channel_size), np.uint64(width)
    for f in range(np.uint64(0), np.uint64(features), wide):
        here, source = min(wide, np.uint64(features) - f), np.uint64(start) + f * spacing
        full = end - end % wide
        for column in range(np.uint64(0), full, wide):
            put_square(
                gradient, source + column, spacing, here, rows, column * np.uint64(LANES) + f,
                np.uint64(LANES), unused, np.uint64(0),
            )  # fmt: skip
        if full < end:
            put_lines(
                gradient, source + full, spacing, here, end - full, rows, full * np.uint64(LANES) + f,
                np.uint64(LANES), unused, np.uint64(0),
            )  # fmt: skip


@compiled()
def _transform_gradient(above, below, tiles, out, start, apart):
    """out[start + k apart + tile LANES² …] = (A y Aᵀ)_k of the tiles of two rows of (2 tiles, LANES)."""
    never_inlined()
    step = np.uint64(apart)
    for tile in range(np.uint64(tiles)):
        left = tile * np.uint64(2 * LANES)
        right = left + np.uint64(LANES)
        a0, a1, a2, a3 = _spread_gradient(load(above, left), load(above, right))
        b0, b1, b2, b3 = _spread_gradient(load(below, left), load(below, right))
        target = np.uint64(start) + tile * np.uint64(LANES * LANES)
        _put_gradient(out, target, step, a0, b0)
        _put_gradient(out, target + step, step, a1, b1)
        _put_gradient(out, target + np.uint64(2) * step, step, a2, b2)
        _put_gradient(out, target + np.uint64(3) * step, step, a3, b3)


@compiled()
def _put_gradient(out, target, step, y0, y1):
    row = np.uint64(4) * step
    x0, x1, x2, x3 = _spread_gradient(y0, y1)
    store(out, target, x0)
    store(out, target + row, x1)
    store(out, target + np.uint64(2) * row, x2)
    store(out, target + np.uint64(3) * row, x3)


@compiled()
def _gathered(m0, m1, m2, m3):
    """Gᵀ m"""
    half = number(m0, 0.5)
    both, other = (m1 + m2) * half, (m1 - m2) * half
    return m0 + both, other, both + m3


@compiled()
def _kernel_gradient(sums, spans, span_size, start, apart, out, target):
    """out[target + tap LANES …] = (Gᵀ m G)_tap of m = the sums of all spans at start + k apart."""
    never_inlined()
    m = np.empty(TERMS * LANES, out.dtype)
    for k in range(np.uint64(TERMS)):
        place = np.uint64(start) + k * np.uint64(apart)
        total = load(sums, place)
        for span in range(np.uint64(1), np.uint64(spans)):
            total = total + load(sums, place + span * np.uint64(span_size))
        store(m, k * np.uint64(LANES), total)
    columns = np.empty(12 * LANES, out.dtype)
    lanes = np.uint64(LANES)
    for column in range(np.uint64(4)):
        first = column * lanes
        g0, g1, g2 = _gathered(
            load(m, first), load(m, first + np.uint64(4) * lanes), load(m, first + np.uint64(8) * lanes),
            load(m, first + np.uint64(12) * lanes),
        )  # fmt: skip
        store(columns, first, g0)
        store(columns, first + np.uint64(4) * lanes, g1)
        store(columns, first + np.uint64(8) * lanes, g2)
    for row in range(np.uint64(3)):
        first = row * np.uint64(4) * lanes
        g0, g1, g2 = _gathered(
            load(columns, first), load(columns, first + lanes), load(columns, first + np.uint64(2) * lanes),
            load(columns, first + np.uint64(3) * lanes),
        )  # fmt: skip
        place = np.uint64(target) + row * np.uint64(3) * lanes
        store(out, place, g0)
        store(out, place + lanes, g1)
        store(out, place + np.uint64(2) * lanes, g2)


@compiled(parallel=True)
def winograd_weight_gradient(
    x, gradient, weight_gradient, bias_gradient, batch, in_channels, out_channels, groups, sizes
):
    """weight_gradient (out_channels, in_channels / groups, 3, 3) of x and the gradient by the output, whole
    vectors of samples at a time: Gᵀ [Σ (A y Aᵀ) ⊙ (Bᵀ d B)] G over tiles and samples.

    bias_gradient  (out_channels), or empty
    sizes          of a Window of 3 × 3, with padding of 0 to 2

    Law: sums are over spans of tiles that depend on the sizes alone, not on the number of threads.
    """
    window = Window(*sizes)
    in_height, in_width, top, left = window.in_height, window.in_width, window.padding_y, window.padding_x
    out_height, out_width = window.out_height, window.out_width
    channels, features = in_channels // groups, out_channels // groups
    lanes, in_plane, out_plane = lanes_of(x.itemsize), in_height * in_width, out_height * out_width
    tiles_y, tiles_x = (out_height + 1) // 2, (out_width + 1) // 2
    pitch = 2 * tiles_x + 2
    plane = (2 * tiles_y + 2) * pitch * WIDE
    units = (batch + WIDE - 1) // WIDE
    at_once = max(1, min(units, PACKED // (in_channels * plane * x.itemsize)))
    packed = aligned(at_once * in_channels * plane + LANES, x)
    downs, rights = np.empty(4, np.uint64), np.empty(4, np.uint64)
    for i in range(4):
        downs[i], rights[i] = i * pitch * WIDE, i * WIDE
    # A block is some tiles of a row; a task has a span of blocks and some features of a group.
    cuts = (tiles_x + MOST_TILES - 1) // MOST_TILES
    blocks = tiles_y * cuts
    most = (tiles_x + cuts - 1) // cuts
    f_cuts = (features + MOST_FEATURES - 1) // MOST_FEATURES
    own_features = (features + f_cuts - 1) // f_cuts
    own_features = (own_features + LANES - 1) // LANES * LANES
    f_cuts = (features + own_features - 1) // own_features
    high = (channels + ROWS - 1) // ROWS * ROWS
    slab = TERMS * high * own_features
    parts = groups * f_cuts
    spans = max(1, min(TASKS, min(units, at_once) * blocks, SUMS // (parts * slab * x.itemsize)))
    sums = aligned(spans * parts * slab, x)
    for first in range(0, units, at_once):
        here = min(at_once, units - first)
        for item in prange(here * in_channels):
            unit, channel = item // in_channels, item % in_channels
            sample = (first + unit) * WIDE
            image = packed[item * plane : (item + 1) * plane]
            image[:] = 0
            pack_cells(
                x, (sample * in_channels + channel) * in_plane, in_channels * in_plane,
                min(WIDE, batch - sample), in_height, in_width, image, top * pitch + left,
                Cells(WIDE, pitch, 0, 0, 1, 1),
            )  # fmt: skip
        packed[here * in_channels * plane :] = 0
        for task in prange(spans * parts):
            span, part = task // parts, task % parts
            group, f_first = part // f_cuts, part % f_cuts * own_features
            some = min(own_features, features - f_first)
            vectors = (some + LANES - 1) // LANES
            length = most * LANES
            seen = aligned(TERMS * channels * length, x)
            met = aligned(TERMS * vectors * LANES * length, x)
            above, below = aligned(2 * length, x), aligned(2 * length, x)
            places, across = np.empty(most, np.uint64), np.empty(vectors * LANES // lanes, np.uint64)
            origins = np.empty(channels, np.uint64)
            steps, shifts = np.empty(length, np.uint64), np.empty(length, np.uint64)
            for t in range(length):
                steps[t], shifts[t] = t, t * LANES
            for v in range(across.size):
                across[v] = v * lanes // LANES * LANES * length + v * lanes % LANES
            for c in range(channels):
                origins[c] = c * length
            task_sums = sums[task * slab : (task + 1) * slab]
            if first == 0:
                task_sums[:] = 0
            for block in range(here * blocks * span // spans, here * blocks * (span + 1) // spans):
                unit, row, cut = block // blocks, block % blocks // cuts, block % cuts
                x_first, x_end = tiles_x * cut // cuts, tiles_x * (cut + 1) // cuts
                count = x_end - x_first
                for v in range(count):
                    places[v] = (2 * row * pitch + 2 * (x_first + v)) * WIDE
                for c in range(channels):
                    start = (unit * in_channels + group * channels + c) * plane
                    _transform_inputs(
                        packed[start:], places[:count], downs, rights, seen, c * length, channels * length
                    )
                columns = min(out_width - 2 * x_first, 2 * count)
                for item in range(vectors * WIDE):
                    vector, lane = item // WIDE, item % WIDE
                    sample, feature = (first + unit) * WIDE + lane, f_first + vector * LANES
                    if sample < batch:
                        start = (sample * out_channels + group * features + feature) * out_plane
                        start += 2 * row * out_width + 2 * x_first
                        these = min(LANES, features - feature)
                        _gradient_rows(gradient, start, out_plane, these, columns, 2 * count, above)
                        if 2 * row + 1 < out_height:
                            start += out_width
                            _gradient_rows(gradient, start, out_plane, these, columns, 2 * count, below)
                        else:
                            below[:] = 0
                    else:
                        above[:] = 0
                        below[:] = 0
                    _transform_gradient(
                        above, below, count, met, (vector * length + lane) * LANES,
                        vectors * LANES * length,
                    )  # fmt: skip
                for k in range(TERMS):
                    add_products(
                        seen[k * channels * length :], origins, steps,
                        met[k * vectors * LANES * length :], across, shifts, 0, count * LANES,
                        task_sums[k * high * vectors * LANES : (k + 1) * high * vectors * LANES],
                    )  # fmt: skip
    for item in prange(parts * (own_features // LANES)):
        part, vector = item // (own_features // LANES), item % (own_features // LANES)
        group, f_first = part // f_cuts, part % f_cuts * own_features
        some = min(own_features, features - f_first)
        vectors, feature = (some + LANES - 1) // LANES, f_first + vector * LANES
        if vector < vectors:
            kernels = aligned(channels * 9 * LANES, x)
            for c in range(channels):
                _kernel_gradient(
                    sums, spans, parts * slab, part * slab + (c * vectors + vector) * LANES,
                    high * vectors * LANES, kernels, c * 9 * LANES,
                )  # fmt: skip
            lanes_as_rows(
                kernels, LANES, min(LANES, features - feature), channels * 9, weight_gradient,
                (group * features + feature) * channels * 9, channels * 9,
            )  # fmt: skip
    for channel in prange(bias_gradient.size):
        bias_gradient[channel] = channel_sum(gradient, batch, out_channels, out_plane, channel)

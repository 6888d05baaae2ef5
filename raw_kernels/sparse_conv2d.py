"""Two-dimensional convolution by a list of kept weights."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape, kernel
from bppsa_cupy.raw_kernels.twins.convolution.indirect import PACKED, TASKS
from bppsa_cupy.raw_kernels.twins.convolution.taps import (
    ENOUGH,
    Cells,
    add_dot_products,
    axis_of_cells,
    cut_batch,
    lane_sum,
    offset_taps,
    pack_cells,
    pack_channel,
    reach,
    sum_taps,
    unpack_cells,
)
from bppsa_cupy.raw_kernels.twins.products.panels import aligned
from bppsa_cupy.raw_kernels.twins.products.tiles import lanes_of
from bppsa_cupy.raw_kernels.twins.simd.planes import channel_sum
from bppsa_cupy.system.compiled import compiled

# ---- sparse_convolve ----

#: Bytes of what all taps see of the input for some rows of outputs, which stay in a second cache while every
#: output channel passes, and of one channel's sums.
WINDOWS, SUMS = 1 << 20, 1 << 14


#: Warps of a block, which the .cu text counts on, and warps that keep a GPU busy.
WARPS, ENOUGH_WARPS = 8, 4096


def _convolve_launch(s):
    """Blocks along positions, channels and phases. A lane takes four samples, or one to fill the GPU."""
    phases, rows = s["phases_y"] * s["phases_x"], -(-s["out_channels"] // WARPS)
    height, width = (
        -(-s[f"out_{side}"] // max(1, s[f"phases_{by}"])) for side, by in (("height", "y"), ("width", "x"))
    )
    groups = -(-(-(-s["batch"] // 4) * height * width) // 32)
    if groups * phases * s["out_channels"] < ENOUGH_WARPS:
        groups = -(-s["batch"] * height * width // 32)
    groups = min(groups, MAXIMAL_GRID)
    beside = -(-2 * ENOUGH_WARPS // max(1, groups * phases * WARPS))
    return LaunchShape((groups, min(rows, max(1, beside), 65535), min(phases, 65535)), (32 * WARPS, 1, 1))


@kernel(_convolve_launch)
@compiled(parallel=True)
def sparse_convolve(
    input, values, bias, indptr, channels, downs, rights, which, output, batch, in_channels, in_height,
    in_width, stride_y, stride_x, out_channels, out_height, out_width, phases_y, phases_x, nnz, biased,
):  # fmt: skip
    lanes, phases = lanes_of(input.itemsize), phases_y * phases_x
    height, width = (out_height + phases_y - 1) // phases_y, (out_width + phases_x - 1) // phases_x
    low_y, high_y = reach(downs, stride_y)
    low_x, high_x = reach(rights, stride_x)
    pitch, gap_x = axis_of_cells(in_width, width, stride_x, low_x, high_x)
    lines, gap_y = axis_of_cells(in_height, height, stride_y, low_y, high_y)
    plane, before, planes = lines * pitch, gap_y * pitch + gap_x, stride_y * stride_x
    size = in_channels * planes * plane
    offsets, factors = np.empty(nnz, np.uint32), np.empty(nnz, input.dtype)
    sample = 0
    for part in range(2):
        units, wide = cut_batch(batch, lanes, (height - 1) * pitch + width, part)
        cells = Cells(wide, pitch, plane, before, stride_y, stride_x)
        unit_size = (size + before) * wide + lanes
        unit_size = (unit_size + lanes - 1) // lanes * lanes
        at_once = max(1, min(units, PACKED // (unit_size * input.itemsize)))
        packed = aligned(min(units, at_once) * unit_size, input)
        for cut in prange(TASKS if units else 0):
            start, end = np.int64(nnz * cut // TASKS), np.int64(nnz * (cut + 1) // TASKS)
            offset_taps(start, end, channels, downs, rights, cells, offsets)
            for k in range(np.uint64(start), np.uint64(end)):
                factors[k] = values[which[k]]
        # Bands of rows of outputs, and within each parts of the channels.
        row_bytes = pitch * wide * input.itemsize
        band = min(WINDOWS // (in_channels * planes * row_bytes + 1) - (high_y - low_y), SUMS // row_bytes)
        band = min(height, max(band, 1 + ENOUGH * lanes // (pitch * wide)))
        bands = (height + band - 1) // band
        for first in range(0, units, at_once):
            here = min(at_once, units - first)
            for item in prange(here * in_channels):
                unit, channel = item // in_channels, item % in_channels
                pack_channel(
                    input, sample + (first + unit) * wide, channel, in_channels, batch, in_height, in_width,
                    packed[unit * unit_size : (unit + 1) * unit_size], cells,
                )  # fmt: skip
            cuts = max(1, min(out_channels, (TASKS + here * bands - 1) // (here * bands)))
            for task in prange(here * bands * cuts):
                unit, cut = task // (bands * cuts), task % cuts
                top = height * (task // cuts % bands) // bands
                bottom = height * (task // cuts % bands + 1) // bands
                image = packed[unit * unit_size : (unit + 1) * unit_size]
                source = sample + (first + unit) * wide
                samples = min(wide, batch - source)
                vectors = (((bottom - top - 1) * pitch + width) * wide + lanes - 1) // lanes
                sums = aligned(vectors * lanes, input)
                left, right = out_channels * cut // cuts, out_channels * (cut + 1) // cuts
                for row in range(left * phases, right * phases):
                    channel, phase = row // phases, row % phases
                    phase_y, phase_x = phase // phases_x, phase % phases_x
                    start, count = np.int64(indptr[row]), np.int64(indptr[row + 1] - indptr[row])
                    sum_taps(
                        image, top * pitch * wide, offsets[start:], factors[start:], count, vectors, sums
                    )
                    rows = min(bottom, (out_height - phase_y + phases_y - 1) // phases_y) - top
                    columns = (out_width - phase_x + phases_x - 1) // phases_x
                    target = (source * out_channels + channel) * out_height + top * phases_y + phase_y
                    unpack_cells(
                        sums, rows, columns, cells, bias[channel] if biased else input.dtype.type(0), output,
                        target * out_width + phase_x, out_channels * out_height * out_width, samples,
                        phases_y * out_width, phases_x,
                    )  # fmt: skip
        sample += units * wide


# ---- sparse_weight_gradient ----

#: Weights of a block, as in the .cu text.
CHUNK = 96


def _weight_gradient_launch(s):
    """A block per output channel and CHUNK of its weights, where channels have equally many. The fewer
    blocks, the more warps each of them has."""
    chunks = min(max(1, -(-s["nnz"] // max(1, s["out_channels"] * CHUNK))), 65535)
    outputs, warps = s["batch"] * s["out_height"] * s["out_width"], WARPS
    while warps < 128 // s["itemsize"] and 2 * warps <= min(
        ENOUGH_WARPS // max(1, s["out_channels"] * chunks), outputs // 128
    ):
        warps *= 2
    return LaunchShape((min(s["out_channels"], MAXIMAL_GRID), chunks, 1), (32 * warps, 1, 1))


@kernel(_weight_gradient_launch)
@compiled(parallel=True)
def sparse_weight_gradient(
    input, gradient, indptr, channels, downs, rights, weight_gradient, bias_gradient, batch, in_channels,
    in_height, in_width, stride_y, stride_x, out_channels, out_height, out_width, nnz, biased,
):  # fmt: skip
    # A weight's gradient is the product of its channel's gradient and what its tap sees, both by cells, where
    # those between the rows of the gradient are zeros.
    lanes, out_plane = lanes_of(input.itemsize), out_height * out_width
    low_y, high_y = reach(downs, stride_y)
    low_x, high_x = reach(rights, stride_x)
    pitch, gap_x = axis_of_cells(in_width, out_width, stride_x, low_x, high_x)
    lines, gap_y = axis_of_cells(in_height, out_height, stride_y, low_y, high_y)
    plane, before, planes = lines * pitch, gap_y * pitch + gap_x, stride_y * stride_x
    size, cells = in_channels * planes * plane, (out_height - 1) * pitch + out_width
    weight_gradient[:] = 0
    offsets, sample = np.empty(nnz, np.uint32), 0
    for part in range(2):
        units, wide = cut_batch(batch, lanes, cells, part)
        inputs = Cells(wide, pitch, plane, before, stride_y, stride_x)
        outputs = Cells(wide, pitch, 0, 0, 1, 1)
        unit_size = ((size + before) * wide + 2 * lanes - 1) // lanes * lanes
        at_once = max(1, min(units, PACKED // (unit_size * input.itemsize)))
        packed = aligned(min(units, at_once) * unit_size, input)
        vectors = (cells * wide + lanes - 1) // lanes
        cuts = max(1, min(out_channels, TASKS))
        for cut in prange(cuts if units else 0):
            offset_taps(nnz * cut // cuts, nnz * (cut + 1) // cuts, channels, downs, rights, inputs, offsets)
        for first in range(0, units, at_once):
            here = min(at_once, units - first)
            for item in prange(here * in_channels):
                unit, channel = item // in_channels, item % in_channels
                pack_channel(
                    input, sample + (first + unit) * wide, channel, in_channels, batch, in_height, in_width,
                    packed[unit * unit_size : (unit + 1) * unit_size], inputs,
                )  # fmt: skip
            for cut in prange(cuts):
                left, right = out_channels * cut // cuts, out_channels * (cut + 1) // cuts
                factors = aligned(vectors * lanes, input)
                for row in range(left, right):
                    start, count = np.int64(indptr[row]), np.int64(indptr[row + 1] - indptr[row])
                    if count == 0:
                        continue
                    sums = aligned(count * lanes, input)
                    sums[:] = 0
                    for unit in range(here):
                        source = sample + (first + unit) * wide
                        factors[:] = 0
                        pack_cells(
                            gradient, (source * out_channels + row) * out_plane, out_channels * out_plane,
                            min(wide, batch - source), out_height, out_width, factors, 0, outputs,
                        )  # fmt: skip
                        image = packed[unit * unit_size : (unit + 1) * unit_size]
                        add_dot_products(image, 0, offsets[start:], count, factors, vectors, sums)
                    for k in range(count):
                        weight_gradient[start + k] += lane_sum(sums, np.uint64(k * lanes))
        sample += units * wide
    if biased:
        for channel in prange(out_channels):
            bias_gradient[channel] = channel_sum(gradient, batch, out_channels, out_plane, channel)

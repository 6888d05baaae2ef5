"""The gradients of a convolution by the weights that are kept, and by the bias (paper, equation 2)."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape, kernel
from bppsa_cupy.raw_kernels.twins.convolution.indirect import PACKED, TASKS
from bppsa_cupy.raw_kernels.twins.convolution.taps import (
    Cells,
    add_dot_products,
    axis_of_cells,
    cut_batch,
    lane_sum,
    offset_taps,
    pack_cells,
    pack_channel,
    reach,
)
from bppsa_cupy.raw_kernels.twins.operators.planes import channel_sum
from bppsa_cupy.raw_kernels.twins.products.panels import aligned
from bppsa_cupy.raw_kernels.twins.products.tiles import lanes_of
from bppsa_cupy.system.compiled import compiled

#: Weights of a block, as in the .cu text.
CHUNK = 64


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
                        own = packed[unit * unit_size : (unit + 1) * unit_size]
                        add_dot_products(own, 0, offsets[start:], count, factors, vectors, sums)
                    for k in range(count):
                        weight_gradient[start + k] += lane_sum(sums, np.uint64(k * lanes))
        sample += units * wide
    if biased:
        for channel in prange(out_channels):
            bias_gradient[channel] = channel_sum(gradient, batch, out_channels, out_plane, channel)


def launch(s):
    """A block per output channel and CHUNK of its weights, where channels have equally many."""
    chunks = -(-s["nnz"] // max(1, s["out_channels"] * CHUNK))
    return LaunchShape((min(s["out_channels"], MAXIMAL_GRID), min(max(1, chunks), 65535), 1), (256, 1, 1))


KERNEL = kernel(sparse_weight_gradient, launch)

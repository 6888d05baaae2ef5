"""Forward in time with samples as lanes: whole blocks of them."""

import numpy as np

from bppsa_cupy.raw_kernels.frames.host.samples import blocks_of, earliest
from bppsa_cupy.raw_kernels.frames.host.teams import share
from bppsa_cupy.raw_kernels.twins.products.lane_products import multiply_blocks
from bppsa_cupy.raw_kernels.twins.products.packing import pack_parts
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, lanes_before
from bppsa_cupy.raw_kernels.twins.simd.rows import (
    ALL,
    load_rows,
    rows_within,
    select_rows,
    spread_rows,
    store_rows,
)
from bppsa_cupy.system.compiled import compiled


def make_forward_lanes(form, full):
    """The steps of a walk of blocks of samples, which are `full` or one that is not."""
    gates, states, kept, numbers = form.gates, form.states, form.kept, form.parameters
    sums_of_step = form.sums
    cell = form.functions.forward

    @compiled()
    def steps_of(
        projected, packed, bias, unit, ends, state, values, held, sums, steps, hidden, sets, batch, reverse,
        first, samples, begin, end, start, stop,
    ):  # fmt: skip
        count = None if full else np.uint64(samples)
        H, B, L, none = np.uint64(hidden), np.uint64(batch), np.uint64(LANES), np.uint64(0)
        plane, block, part = np.uint64(sets) * H * B, H * L, np.uint64(end - begin) * L
        apart, width, many = (
            np.uint64(states) * block,
            np.uint64(sums_of_step) * part,
            np.uint64(blocks_of(samples)),
        )
        least = earliest(ends)
        for s in range(start, stop):
            t = steps - 1 - s if reverse else s
            now = np.uint64(s & 1) * many * apart
            later = many * apart - now
            multiply_blocks(
                packed,
                bias,
                sums_of_step * (end - begin),
                hidden,
                held,
                now,
                L,
                apart,
                sums,
                none,
                L,
                width,
                many,
            )
            for number in range(many):
                source = np.uint64(first) + number * L + np.uint64(begin) * B
                x = np.uint64(t * gates) * plane + source
                y, v = np.uint64(t * states) * plane + source, np.uint64(t * kept) * plane + source
                i, u = now + number * apart + np.uint64(begin) * L, number * width
                n = later + number * apart + np.uint64(begin) * L
                for j in range(np.uint64(begin), np.uint64(end)):
                    before = load_rows(held, i, block, states, ALL, None)
                    after, keep = cell(
                        load_rows(projected, x, plane, gates, ALL, count),
                        load_rows(sums, u, part, sums_of_step, ALL, None),
                        before,
                        spread_rows(unit, j, H, numbers),
                    )
                    if t >= least:
                        inside = lanes_before(t, ends[np.int64(number * L) :])
                        after, keep = select_rows(inside, after, before), rows_within(inside, keep)
                    store_rows(held, n, block, after, None)
                    store_rows(state, y, plane, after, count)
                    store_rows(values, v, plane, keep, count)
                    x, y, v = x + B, y + B, v + B
                    i, n, u = i + L, n + L, u + L

    return steps_of


@compiled()
def pack_lanes_part(gates, weight_hh, bias_hh, hidden, item, parts, packed, bias):
    """Set weights and biases of one part of one set, as the steps take them."""
    number, (begin, end) = item // parts, share(hidden, parts, item % parts, 1)
    square = hidden * hidden
    pack_parts(weight_hh, number * gates * square, hidden, 1, gates, square, begin, end, hidden, packed)
    for gate in range(gates):
        source, target = (number * gates + gate) * hidden, gate * (end - begin)
        for j in range(begin, end):
            bias[target + j - begin] = bias_hh[source + j]

"""Back through chunks of time with samples as lanes: whole blocks of them."""

import numpy as np

from bppsa_cupy.raw_kernels.frames.host.samples import blocks_of, earliest
from bppsa_cupy.raw_kernels.frames.host.teams import share
from bppsa_cupy.raw_kernels.twins.products.lane_products import multiply_blocks
from bppsa_cupy.raw_kernels.twins.products.packing import pack_parts
from bppsa_cupy.raw_kernels.twins.simd.lane_blocks import load_lanes
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, lanes_before, load, select, store
from bppsa_cupy.raw_kernels.twins.simd.rows import (
    ALL,
    add_to_first,
    chosen_rows,
    load_rows,
    rows_within,
    select_rows,
    spread_rows,
    store_rows,
)
from bppsa_cupy.system.compiled import compiled


def make_backward_lanes(form, full):
    """The steps of a walk of blocks of samples, which are `full` or one that is not."""
    gates, states, kept, numbers, deltas = form.gates, form.states, form.kept, form.parameters, form.deltas
    cell, direct, summed = form.functions.backward, form.carries, gates + len(form.separate)
    separate, reads_after, reads_before = form.separate_bits, form.after_bits, form.before_bits
    sums_of_step, recurrent = form.sums, form.recurrent_bits

    @compiled()
    def steps_of(
        state, values, initial, packed, unit, gradient, ends, delta, carried, through, sums, steps, hidden,
        sets, batch, per_step, reverse, last, length, first, samples, begin, end, start, stop,
    ):  # fmt: skip
        """Rounds `start` to `stop` - 1 of the walk back over `length` steps from `last`: in each, what W_hh
        makes of the round before, then the cell; round `length` has the former alone."""
        count, none = None if full else np.uint64(samples), np.zeros(hidden, state.dtype)
        H, B, L = np.uint64(hidden), np.uint64(batch), np.uint64(LANES)
        plane, block, whole = np.uint64(sets) * H * B, H * L, np.uint64(states * hidden) * L
        apart, many, zero = np.uint64(sums_of_step) * block, np.uint64(blocks_of(samples)), np.uint64(0)
        some, least = np.uint64(end - begin) * L, earliest(ends)
        for back in range(start, stop):
            s = last - back
            t = steps - 1 - s if reverse else s
            if back > 0:
                later = t - 1 if reverse else t + 1
                multiply_blocks(
                    packed, none, end - begin, sums_of_step * hidden, through,
                    np.uint64((back - 1) & 1) * many * apart, L, apart, sums, zero, L, some, many,
                )  # fmt: skip
                for number in range(many):
                    i, u = number * whole + np.uint64(begin) * L, number * some
                    for _ in range(begin, end):
                        handed, made = load(carried, i), load(sums, u)
                        carry = handed + made if direct else made
                        if later >= least:
                            carry = select(lanes_before(later, ends[np.int64(number * L) :]), carry, handed)
                        store(carried, i, carry)
                        i, u = i + L, u + L
            if back == length:
                break
            former, shift = initial, zero
            if s > 0:
                former, shift = state, np.uint64((t + 1 if reverse else t - 1) * states) * plane
            now = np.uint64(back & 1) * many * apart
            for number in range(many):
                source = np.uint64(first) + number * L + np.uint64(begin) * B
                o, y = np.uint64(t) * plane + source, np.uint64(t * states) * plane + source
                e = shift + source
                v, d = np.uint64(t * kept) * plane + source, np.uint64(t * deltas) * plane + source
                i = number * whole + np.uint64(begin) * L
                w = now + number * apart + np.uint64(begin) * L
                for j in range(np.uint64(begin), np.uint64(end)):
                    carry = load_rows(carried, i, block, states, ALL, None)
                    g = add_to_first(carry, load_lanes(gradient, o, count)) if per_step else carry
                    by_x, by_u, handed, by_number = cell(
                        g,
                        load_rows(values, v, plane, kept, ALL, count),
                        load_rows(state, y, plane, states, reads_after, count),
                        load_rows(former, e, plane, states, reads_before, count),
                        spread_rows(unit, j, H, numbers),
                    )
                    if t >= least:
                        inside = lanes_before(t, ends[np.int64(number * L) :])
                        by_x, by_u = rows_within(inside, by_x), rows_within(inside, by_u)
                        by_number = rows_within(inside, by_number)
                        handed = select_rows(inside, handed, carry)
                    store_rows(carried, i, block, handed, None)
                    store_rows(through, w, block, chosen_rows(by_x, by_u, separate, recurrent), None)
                    store_rows(delta, d, plane, by_x, count)
                    store_rows(delta, d + np.uint64(gates) * plane, plane, by_u, count)
                    store_rows(delta, d + np.uint64(summed) * plane, plane, by_number, count)
                    o, y, e, v, d = o + B, y + B, e + B, v + B, d + B
                    i, w = i + L, w + L

    return steps_of


@compiled()
def pack_lanes_part(gates, weight_hh, hidden, item, parts, packed):
    """Set weights of one part of one set, as the steps take them."""
    first, (begin, end) = item // parts * gates * hidden * hidden, share(hidden, parts, item % parts, 1)
    pack_parts(weight_hh, first, 1, hidden, 1, 0, begin, end, gates * hidden, packed)

"""Back through chunks of time with units as lanes: a few samples, or one."""

import numpy as np

from bppsa_cupy.raw_kernels.frames.host.teams import share
from bppsa_cupy.raw_kernels.twins.products.packing import pack_rows
from bppsa_cupy.raw_kernels.twins.products.row_products import clear_vectors, multiply_rows, whole_vectors
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, load, store
from bppsa_cupy.raw_kernels.twins.simd.prefetch import will_read, will_write
from bppsa_cupy.raw_kernels.twins.simd.rows import ALL, add_to_first, chosen_rows, load_rows, store_rows
from bppsa_cupy.raw_kernels.twins.simd.strided import gather, scatter
from bppsa_cupy.system.compiled import compiled


def make_backward_rows(form):
    """The steps of a walk of a few samples."""
    gates, states, kept, numbers, deltas = form.gates, form.states, form.kept, form.parameters, form.deltas
    cell, direct, summed = form.functions.backward, form.carries, gates + len(form.separate)
    separate, reads_after, reads_before = form.separate_bits, form.after_bits, form.before_bits
    sums_of_step, recurrent = form.sums, form.recurrent_bits

    @compiled()
    def steps_of(
        state, values, initial, packed, unit, gradient, ends, delta, carried, through, taken, steps, hidden,
        sets, batch, per_step, reverse, last, length, first, count, begin, end, start, stop,
    ):  # fmt: skip
        """Rounds `start` to `stop` - 1 of the walk back over `length` steps from `last`: in each, what W_hh
        makes of the round before, then the cell; round `length` has the former alone."""
        plane, source = sets * hidden * batch, first + begin * batch
        own, width, whole = end - begin, whole_vectors(end - begin), whole_vectors(hidden)
        L, row, spacing = np.uint64(LANES), np.uint64(width), np.uint64(whole)
        sample, apart, none = np.uint64(states) * spacing, np.uint64(sums_of_step) * spacing, np.uint64(0)
        # `taken` has every sample's sums, then every sample's rows: what was kept, states after and before,
        # the gradient and deltas.
        rows = (kept + 2 * states + 1 + deltas) * width
        keeps, after, before = count * width, (count + kept) * width, (count + kept + states) * width
        by_output, made = before + states * width, before + (states + 1) * width
        for back in range(start, stop):
            s = last - back
            t = steps - 1 - s if reverse else s
            former, shift = initial, 0
            if s > 0:
                former, shift = state, (t + 1 if reverse else t - 1) * states * plane
            if back < length:
                for part in range(kept):
                    will_read(values, (t * kept + part) * plane + source, own, batch)
                for part in range(states):
                    if reads_after >> part & 1:
                        will_read(state, (t * states + part) * plane + source, own, batch)
                    if reads_before >> part & 1:
                        will_read(former, part * plane + source + shift, own, batch)
                if per_step:
                    will_read(gradient, t * plane + source, own, batch)
                for part in range(deltas):
                    will_write(delta, (t * deltas + part) * plane + source, own, batch)
                # Other threads have read what was where this one writes.
                now = np.uint64(back & 1) * np.uint64(count) * apart
                for c in range(count):
                    for gate in range(sums_of_step):
                        place = np.int64(now) + (c * sums_of_step + gate) * whole
                        will_write(through, place + begin, own, 1)
            if back > 0:
                later = t - 1 if reverse else t + 1
                now = np.uint64((back - 1) & 1) * np.uint64(count) * apart
                for c in range(count):
                    clear_vectors(taken, np.uint64(c) * row, width)
                    for gate in range(sums_of_step):
                        place = np.int64(now) + (c * sums_of_step + gate) * whole
                        will_read(through, place, hidden, 1)
                multiply_rows(
                    packed, width // LANES, sums_of_step, hidden, through, now, spacing, apart, taken, none,
                    row, count, back & 1 == 1,
                )  # fmt: skip
                for c in range(count):
                    if later < ends[c]:
                        i, u = np.uint64(c) * sample + np.uint64(begin), np.uint64(c) * row
                        for j in range(none, row, L):
                            carry = load(taken, u + j)
                            if direct:
                                carry = load(carried, i + j) + carry
                            store(carried, i + j, carry)
            if back == length:
                break
            now = np.uint64(back & 1) * np.uint64(count) * apart
            for part in range(kept):
                place = (t * kept + part) * plane + source
                gather(values, place, batch, count, own, taken, keeps + part * width, rows)
            for part in range(states):
                place = part * plane + source
                if reads_after >> part & 1:
                    later = place + t * states * plane
                    gather(state, later, batch, count, own, taken, after + part * width, rows)
                if reads_before >> part & 1:
                    gather(former, place + shift, batch, count, own, taken, before + part * width, rows)
            if per_step:
                gather(gradient, t * plane + source, batch, count, own, taken, by_output, rows)
            for c in range(count):
                i = np.uint64(c) * sample + np.uint64(begin)
                w = now + np.uint64(c) * apart + np.uint64(begin)
                inside, of = t < ends[c], np.uint64(c * rows)
                for j in range(none, row, L):
                    m, n = np.uint64(made) + of + j, of + j
                    if inside:
                        g = load_rows(carried, i + j, spacing, states, ALL, None)
                        if per_step:
                            g = add_to_first(g, load(taken, np.uint64(by_output) + n))
                        by_x, by_u, by_before, by_number = cell(
                            g,
                            load_rows(taken, np.uint64(keeps) + n, row, kept, ALL, None),
                            load_rows(taken, np.uint64(after) + n, row, states, reads_after, None),
                            load_rows(taken, np.uint64(before) + n, row, states, reads_before, None),
                            load_rows(unit, np.uint64(begin) + j, spacing, numbers, ALL, None),
                        )
                        store_rows(carried, i + j, spacing, by_before, None)
                        chosen = chosen_rows(by_x, by_u, separate, recurrent)
                        store_rows(through, w + j, spacing, chosen, None)
                        store_rows(taken, m, row, by_x, None)
                        store_rows(taken, m + np.uint64(gates) * row, row, by_u, None)
                        store_rows(taken, m + np.uint64(summed) * row, row, by_number, None)
                    else:
                        none_of = load_rows(taken, j, row, sums_of_step, 0, None)
                        store_rows(through, w + j, spacing, none_of, None)
                        store_rows(taken, m, row, load_rows(taken, j, row, deltas, 0, None), None)
            for part in range(deltas):
                target = (t * deltas + part) * plane + source
                scatter(taken, made + part * width, rows, count, own, delta, target, batch)

    return steps_of


@compiled()
def pack_rows_part(gates, weight_hh, hidden, item, parts, packed):
    """Set weights of one part of one set, as the steps take them."""
    first, (begin, end) = item // parts * gates * hidden * hidden, share(hidden, parts, item % parts, LANES)
    pack_rows(weight_hh, first, 1, hidden, 1, 0, begin, end, gates * hidden, packed)

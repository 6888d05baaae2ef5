"""Back through chunks of time with units as lanes: a few samples, or one."""

import numpy as np

from bppsa_cupy.raw_kernels.frames.teams import largest_share, share
from bppsa_cupy.raw_kernels.twins.lanes import LANES, load, store
from bppsa_cupy.raw_kernels.twins.row_products import multiply_rows, pack_rows, whole_vectors
from bppsa_cupy.raw_kernels.twins.rows import ALL, add_to_first, chosen_rows, load_rows, store_rows
from bppsa_cupy.raw_kernels.twins.strided import gather, scatter
from bppsa_cupy.system.compiled import compiled


def make_backward_rows(form):
    """The steps of a walk of a few samples."""
    gates, states, kept, numbers, deltas = form.gates, form.states, form.kept, form.parameters, form.deltas
    cell, direct, summed = form.functions.backward, form.carries, gates + len(form.separate)
    separate, reads_after, reads_before = form.separate_bits, form.after_bits, form.before_bits

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
        sample, apart, none = np.uint64(states) * spacing, np.uint64(gates) * spacing, np.uint64(0)
        # `taken` has every sample's sums, then of one sample what was kept, states after and before, the
        # gradient and deltas.
        keeps, after, before = count * width, (count + kept) * width, (count + kept + states) * width
        by_output, made = before + states * width, before + (states + 1) * width
        for back in range(start, stop):
            s = last - back
            t = steps - 1 - s if reverse else s
            if back > 0:
                later = t - 1 if reverse else t + 1
                taken[: count * width] = 0
                now = np.uint64((back - 1) & 1) * np.uint64(count) * apart
                for gate in range(gates):
                    multiply_rows(
                        packed, width // LANES, gates * hidden, gate * hidden, hidden, through,
                        now + np.uint64(gate) * spacing, apart, taken, none, row, count,
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
            former, shift = initial, 0
            if s > 0:
                former, shift = state, (t + 1 if reverse else t - 1) * states * plane
            now = np.uint64(back & 1) * np.uint64(count) * apart
            for c in range(count):
                i = np.uint64(c) * sample + np.uint64(begin)
                w = now + np.uint64(c) * apart + np.uint64(begin)
                inside = t < ends[c]
                if inside:
                    for part in range(kept):
                        place = (t * kept + part) * plane + source + c
                        gather(values, place, batch, own, taken, keeps + part * width)
                    for part in range(states):
                        place = part * plane + source + c
                        if reads_after >> part & 1:
                            later = place + t * states * plane
                            gather(state, later, batch, own, taken, after + part * width)
                        if reads_before >> part & 1:
                            gather(former, place + shift, batch, own, taken, before + part * width)
                    if per_step:
                        gather(gradient, t * plane + source + c, batch, own, taken, by_output)
                for j in range(none, row, L):
                    m = np.uint64(made) + j
                    if inside:
                        g = load_rows(carried, i + j, spacing, states, ALL, None)
                        if per_step:
                            g = add_to_first(g, load(taken, np.uint64(by_output) + j))
                        by_x, by_u, by_before, by_number = cell(
                            g,
                            load_rows(taken, np.uint64(keeps) + j, row, kept, ALL, None),
                            load_rows(taken, np.uint64(after) + j, row, states, reads_after, None),
                            load_rows(taken, np.uint64(before) + j, row, states, reads_before, None),
                            load_rows(unit, np.uint64(begin) + j, spacing, numbers, ALL, None),
                        )
                        store_rows(carried, i + j, spacing, by_before, None)
                        store_rows(through, w + j, spacing, chosen_rows(by_x, by_u, separate), None)
                        store_rows(taken, m, row, by_x, None)
                        store_rows(taken, m + np.uint64(gates) * row, row, by_u, None)
                        store_rows(taken, m + np.uint64(summed) * row, row, by_number, None)
                    else:
                        store_rows(through, w + j, spacing, load_rows(taken, j, row, gates, 0, None), None)
                        store_rows(taken, m, row, load_rows(taken, j, row, deltas, 0, None), None)
                for part in range(deltas):
                    target = (t * deltas + part) * plane + source + c
                    scatter(taken, made + part * width, own, delta, target, batch)

    return steps_of


@compiled()
def rows_weights(gates, weight_hh, hidden, sets, parts):
    """Weights of every part of every set, as the steps take them."""
    size, most = gates * hidden * hidden, whole_vectors(largest_share(hidden, parts, LANES))
    packed = np.empty((sets * parts, most * gates * hidden), weight_hh.dtype)
    for item in range(sets * parts):
        begin, end = share(hidden, parts, item % parts, LANES)
        pack_rows(weight_hh, item // parts * size, 1, hidden, 1, 0, begin, end, gates * hidden, packed[item])
    return packed

"""The twin of a cell's NAME_fill: values of every step's transposed Jacobian."""

import numpy as np

from bppsa_cupy.raw_kernels.twins.scans.batched import store_some
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, lanes_before, select, spread
from bppsa_cupy.raw_kernels.twins.simd.rows import ALL, dot, load_rows, spread_rows
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled


def make_fill(form):
    """Entries by the state before: of each former state's rows every block that it reaches, dense or
    diagonal."""
    gate_rows, states, saved, numbers = form.sums, form.states, form.saved, form.parameters
    coefficients, enter = form.functions.coefficients, form.functions.enter
    entry, carry = form.functions.entry, form.functions.carry
    reads_after, reads_before = form.after_bits, form.before_bits
    blocks = np.array([(former, later, int(dense)) for former, later, dense in form.blocks])
    former_states, later_states, dense = (np.ascontiguousarray(column) for column in blocks.T)

    @spans_of
    @compiled()
    def fill_steps(
        start_step, end_step, state, gates, initial, weight_hh, unit, lengths, values, entries, steps, hidden,
        batch, reverse,
    ):  # fmt: skip
        H, B, plane = np.uint64(hidden), np.uint64(batch), np.uint64(hidden * batch)
        eye = np.zeros(states * states, state.dtype)
        for i in range(states):
            eye[i * states + i] = 1
        for step in range(start_step, end_step):
            t = np.int64(step)
            former, source = state, np.uint64((t + 1 if reverse else t - 1) * states) * plane
            if t == (steps - 1 if reverse else 0):
                former, source = initial, np.uint64(0)
            zero, one = spread(state.dtype.type(0)), spread(state.dtype.type(1))
            for b in range(0, batch, LANES):
                count = np.uint64(min(LANES, batch - b))
                ends = np.full(LANES, steps, np.int64)
                ends[: np.int64(count)] = lengths[b : b + np.int64(count)]
                inside = lanes_before(t, ends)
                for k in range(np.uint64(hidden)):
                    o = k * B + np.uint64(b)
                    a = coefficients(
                        load_rows(gates, np.uint64(t * saved) * plane + o, plane, saved, ALL, count),
                        load_rows(
                            state, np.uint64(t * states) * plane + o, plane, states, reads_after, count
                        ),
                        load_rows(former, source + o, plane, states, reads_before, count),
                        spread_rows(unit, k, H, numbers),
                    )
                    start = 0
                    for block in range(dense.size):
                        j, i = former_states[block], later_states[block]
                        x = enter(a, spread_rows(eye, np.uint64(i * states), np.uint64(1), states))
                        length, offset = row_of(former_states, dense, hidden, j, block)
                        start = rows_before(former_states, dense, hidden, j)
                        value_of = select(inside, carry(a, x)[j], one if i == j else zero)
                        if dense[block]:
                            weights = k * H
                            for r in range(np.uint64(hidden)):
                                made = entry(a, spread_rows(weight_hh, weights + r, H * H, gate_rows))
                                value = select(inside, dot(made, x), zero)
                                if r == k:
                                    value = value + value_of
                                place = t * entries + start + np.int64(r) * length + offset
                                target = np.uint64((place + np.int64(k)) * batch + b)
                                store_some(values, target, count, value)
                        else:
                            place = t * entries + start + np.int64(k) * length + offset
                            store_some(values, np.uint64(place * batch + b), count, value_of)

    @compiled()
    def fill(state, gates, initial, weight_hh, unit, lengths, values, steps, hidden, batch, reverse):
        entries = 0
        for block in range(dense.size):
            entries += hidden * (hidden if dense[block] else 1)
        fill_steps(
            steps * entries * batch, steps,
            (
                state, gates, initial, weight_hh, unit, lengths, values, entries, steps, hidden, batch,
                reverse,
            ),
        )  # fmt: skip

    return fill


@compiled()
def row_of(former_states, dense, hidden, former, block):
    """The entries of a row of one former state, and where a block's begin in it."""
    length, offset = 0, 0
    for other in range(dense.size):
        if former_states[other] == former:
            if other == block:
                offset = length
            length += hidden if dense[other] else 1
    return length, offset


@compiled()
def rows_before(former_states, dense, hidden, former):
    """The entries of the rows of all former states before one."""
    entries = 0
    for other in range(dense.size):
        if former_states[other] < former:
            entries += hidden * (hidden if dense[other] else 1)
    return entries

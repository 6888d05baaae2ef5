"""Twins of the frames of cells without recurrent gates: every unit of every sample walks by itself.

Elements, (sets, hidden, batch) with `hidden` = 1, lie side by side: neighbours are lanes. A task is a chunk
of some of them, and goes from step to step, at each through its elements as they lie in memory; what it
carries stays in the first cache. Arrays are handed on one by one: a tuple of them at each step would count
references to each, which takes as long as a step of 64 units.
"""

import numpy as np

from bppsa_cupy.raw_kernels.twins.scans.reduce import RENORMALISED, renormalise
from bppsa_cupy.raw_kernels.twins.simd.denormals import flush_denormals, restore_denormals
from bppsa_cupy.raw_kernels.twins.simd.lane_blocks import load_lanes
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, lanes_before
from bppsa_cupy.raw_kernels.twins.simd.rows import (
    ALL,
    add_to_first,
    load_rows,
    rows_within,
    select_rows,
    store_rows,
)
from bppsa_cupy.raw_kernels.twins.threads.crew import tasks_of
from bppsa_cupy.raw_kernels.twins.threads.spans import span_count
from bppsa_cupy.raw_kernels.twins.threads.threads import thread_count
from bppsa_cupy.system.compiled import compiled, part

#: Groups of lanes of a task at most, whose carried numbers the first cache holds; and elements of a copy that
#: take as long as a row of a step.
MOST_GROUPS, WORK = 32, 2


@compiled()
def _cuts_of(chunks, plane):
    """Into how many tasks the elements of each chunk are cut."""
    groups = (plane + LANES - 1) // LANES
    least = (groups + MOST_GROUPS - 1) // MOST_GROUPS
    return max(least, min(groups, -(-thread_count() // max(1, chunks))))


@compiled()
def _elements_of(cut, cuts, plane):
    """The elements [left, right) of one task of a chunk."""
    groups = (plane + LANES - 1) // LANES
    return groups * cut // cuts * LANES, min(plane, groups * (cut + 1) // cuts * LANES)


@compiled()
def _whole(left, right):
    """So many elements in whole groups of lanes."""
    return (right - left + LANES - 1) // LANES * LANES


@compiled()
def _units_of(unit, numbers, left, right, batch):
    """The unit parameters of each element, (numbers, elements)."""
    whole = _whole(left, right)
    own = np.zeros(numbers * whole, unit.dtype)
    for number in range(numbers):
        for j in range(right - left):
            own[number * whole + j] = unit[(left + j) // batch * numbers + number]
    return own


@compiled()
def _ends_of(lengths, left, right, batch, steps):
    """Where each element's sample ends, and the least of them."""
    ends, least = np.full(_whole(left, right), steps, np.int64), steps
    for j in range(right - left):
        ends[j] = lengths[(left + j) % batch]
        least = min(least, ends[j])
    return ends, least


@compiled()
def _taken(source, first, plane, states, left, right):
    """The elements of each state of (states, plane), which begins at `first`."""
    whole = _whole(left, right)
    held = np.zeros(states * whole, source.dtype)
    for i in range(states):
        for j in range(right - left):
            held[i * whole + j] = source[first + i * plane + left + j]
    return held


@compiled()
def _given(held, target, first, plane, states, left, right):
    """The inverse of `_taken`."""
    whole = _whole(left, right)
    for i in range(states):
        for j in range(right - left):
            target[first + i * plane + left + j] = held[i * whole + j]


def make_forward(form):
    """The twin of NAME_forward."""
    gates, states, kept, numbers = form.gates, form.states, form.kept, form.parameters
    cell = form.functions.forward

    @part(forceinline=True)
    def group(j, count, t, is_ragged, left, whole, plane, projected, own, ends, held, state, values):
        o = left + j
        before = load_rows(held, j, whole, states, ALL, None)
        after, keep = cell(
            load_rows(projected, t * gates * plane + o, plane, gates, ALL, count),
            load_rows(own, j, whole, 0, ALL, None),
            before,
            load_rows(own, j, whole, numbers, ALL, None),
        )
        if is_ragged:
            inside = lanes_before(t, ends[j:])
            after, keep = select_rows(inside, after, before), rows_within(inside, keep)
        store_rows(held, j, whole, after, None)
        store_rows(state, t * states * plane + o, plane, after, count)
        store_rows(values, t * kept * plane + o, plane, keep, count)

    @part()
    def task(
        task, cuts, projected, unit, initial, lengths, state, values, final, steps, plane, batch, reverse
    ):  # fmt: skip
        left, right = _elements_of(task, cuts, plane)
        own, whole = _units_of(unit, numbers, left, right, batch), _whole(left, right)
        ends, least = _ends_of(lengths, left, right, batch, steps)
        held = _taken(initial, 0, plane, states, left, right)
        full = (right - left) // LANES * LANES
        for s in range(steps):
            t = steps - 1 - s if reverse else s
            ragged = t >= least
            for j in range(0, full, LANES):
                group(j, None, t, ragged, left, whole, plane, projected, own, ends, held, state, values)
            if full < whole:
                group(
                    full, np.uint64(right - left - full), t, ragged, left, whole, plane, projected, own, ends,
                    held, state, values,
                )  # fmt: skip
        _given(held, final, 0, plane, states, left, right)

    tasks = tasks_of(task)

    @compiled()
    def forward(
        projected, weight_hh, bias_hh, unit, initial, lengths, state, gates_out, final, steps, hidden, sets,
        batch, walks, reverse,
    ):  # fmt: skip
        plane = hidden * walks
        cuts = _cuts_of(1, plane)
        together = cuts > 1 and span_count(WORK * steps * (gates + states + kept) * plane) > 1
        given = cuts, projected, unit, initial, lengths, state, gates_out, final, steps, plane, batch, reverse
        tasks(cuts if plane else 0, together, given)

    return forward


def make_backward(form):
    """The twin of NAME_backward."""
    gates, states, kept, numbers, deltas = form.gates, form.states, form.kept, form.parameters, form.deltas
    cell, reads_after, reads_before = form.functions.backward, form.after_bits, form.before_bits

    @part(forceinline=True)
    def group(
        j, count, t, is_ragged, left, whole, plane, state, values, former, shift, own, gradient, per_step,
        ends, carried, delta,
    ):  # fmt: skip
        o = left + j
        carry = load_rows(carried, j, whole, states, ALL, None)
        g = add_to_first(carry, load_lanes(gradient, np.uint64(t * plane + o), count)) if per_step else carry
        by_x, _, handed, by_number = cell(
            g,
            load_rows(values, t * kept * plane + o, plane, kept, ALL, count),
            load_rows(state, t * states * plane + o, plane, states, reads_after, count),
            load_rows(former, shift + o, plane, states, reads_before, count),
            load_rows(own, j, whole, numbers, ALL, None),
        )
        if is_ragged:
            inside = lanes_before(t, ends[j:])
            by_x, by_number = rows_within(inside, by_x), rows_within(inside, by_number)
            handed = select_rows(inside, handed, carry)
        store_rows(carried, j, whole, handed, None)
        store_rows(delta, t * deltas * plane + o, plane, by_x, count)
        store_rows(delta, (t * deltas + gates) * plane + o, plane, by_number, count)

    @part()
    def task(
        task, cuts, state, values, initial, unit, gradient, boundary, lengths, delta, entering, steps, plane,
        batch, chunk, per_step, reverse,
    ):  # fmt: skip
        piece = task // cuts
        left, right = _elements_of(task % cuts, cuts, plane)
        own, whole = _units_of(unit, numbers, left, right, batch), _whole(left, right)
        ends, least = _ends_of(lengths, left, right, batch, steps)
        carried = _taken(boundary, piece * states * plane, plane, states, left, right)
        begin, end, full = piece * chunk, min(piece * chunk + chunk, steps), (right - left) // LANES * LANES
        flushed = flush_denormals()
        for back in range(end - begin):
            s = end - 1 - back
            t = steps - 1 - s if reverse else s
            former, shift = initial, 0
            if s > 0:
                former, shift = state, (t + 1 if reverse else t - 1) * states * plane
            ragged = t >= least
            for j in range(0, full, LANES):
                group(
                    j, None, t, ragged, left, whole, plane, state, values, former, shift, own, gradient,
                    per_step, ends, carried, delta,
                )  # fmt: skip
            if full < whole:
                group(
                    full, np.uint64(right - left - full), t, ragged, left, whole, plane, state, values,
                    former, shift, own, gradient, per_step, ends, carried, delta,
                )  # fmt: skip
        restore_denormals(flushed)
        _given(carried, entering, piece * states * plane, plane, states, left, right)

    tasks = tasks_of(task)

    @compiled()
    def backward(
        state, values, initial, weight_hh, unit, gradient, boundary, lengths, wanted, delta, entering, steps,
        hidden, sets, batch, walks, chunk, per_step, reverse, guarded,
    ):  # fmt: skip
        if guarded and wanted[0] == 0:
            return
        plane, chunks = hidden * walks, (steps + chunk - 1) // chunk
        cuts = _cuts_of(chunks, plane)
        together = chunks * cuts > 1 and span_count(WORK * steps * (kept + states + deltas) * plane) > 1
        given = (
            cuts, state, values, initial, unit, gradient, boundary, lengths, delta, entering, steps, plane,
            batch, chunk, per_step, reverse,
        )  # fmt: skip
        tasks(chunks * cuts if plane else 0, together, given)

    return backward


def make_reduce(form):
    """The twin of NAME_reduce: of each element the lanes of row i and column c of its map, of P rows, lie at
    (c P + i) LANES of its group's."""
    states, kept, numbers = form.states, form.kept, form.parameters
    coefficients, enter, carry = form.functions.coefficients, form.functions.enter, form.functions.carry
    reads_after, reads_before = form.after_bits, form.before_bits
    of_group = states * (states + 1) * LANES

    @part(forceinline=True)
    def group(
        j, count, t, is_ragged, left, whole, plane, state, values, former, shift, own, gradient, per_step,
        ends, columns,
    ):  # fmt: skip
        o, base = left + j, j // LANES * of_group
        a = coefficients(
            load_rows(values, t * kept * plane + o, plane, kept, ALL, count),
            load_rows(state, t * states * plane + o, plane, states, reads_after, count),
            load_rows(former, shift + o, plane, states, reads_before, count),
            load_rows(own, j, whole, numbers, ALL, None),
        )
        for c in range(states + 1 if per_step else states):
            place = base + c * states * LANES
            x = load_rows(columns, place, LANES, states, ALL, None)
            taken = x
            if c == states:
                taken = add_to_first(x, load_lanes(gradient, np.uint64(t * plane + o), count))
            d = carry(a, enter(a, taken))
            if is_ragged:
                d = select_rows(lanes_before(t, ends[j:]), d, x)
            store_rows(columns, place, LANES, d, None)

    @part()
    def task(
        task, cuts, values, state, initial, unit, gradient, lengths, maps, exponents, offsets, steps, plane,
        batch, chunk, first, per_step, reverse,
    ):  # fmt: skip
        piece = task // cuts
        left, right = _elements_of(task % cuts, cuts, plane)
        own, whole = _units_of(unit, numbers, left, right, batch), _whole(left, right)
        ends, least = _ends_of(lengths, left, right, batch, steps)
        begin, full = (piece + first) * chunk, (right - left) // LANES * LANES
        end = min(begin + chunk, steps)
        columns = np.zeros(whole // LANES * of_group, state.dtype)
        powers = np.zeros(whole * states, np.int32)
        for j in range(whole):
            for i in range(states):
                columns[j // LANES * of_group + (i * states + i) * LANES + j % LANES] = 1
        for back in range(end - begin):
            s = end - 1 - back
            t = steps - 1 - s if reverse else s
            former, shift = initial, 0
            if s > 0:
                former, shift = state, (t + 1 if reverse else t - 1) * states * plane
            ragged = t >= least
            for j in range(0, full, LANES):
                group(
                    j, None, t, ragged, left, whole, plane, state, values, former, shift, own, gradient,
                    per_step, ends, columns,
                )  # fmt: skip
            if full < whole:
                group(
                    full, np.uint64(right - left - full), t, ragged, left, whole, plane, state, values,
                    former, shift, own, gradient, per_step, ends, columns,
                )  # fmt: skip
            if (back + 1) % RENORMALISED == 0 or s == begin:
                for j in range(0, whole, LANES):
                    base = j // LANES * of_group
                    renormalise(
                        columns[base : base + of_group], powers[j * states : (j + LANES) * states], states,
                        ends[j : j + LANES], steps - end if reverse else s,
                    )  # fmt: skip
        for j in range(right - left):
            place = piece * plane + left + j
            base, lane = j // LANES * of_group, j % LANES
            for c in range(states):
                exponents[place * states + c] = powers[j // LANES * LANES * states + c * LANES + lane]
                for i in range(states):
                    maps[(place * states + c) * states + i] = columns[base + (c * states + i) * LANES + lane]
            if per_step:
                for i in range(states):
                    own_sum = columns[base + (states * states + i) * LANES + lane]
                    offsets[(piece * states + i) * plane + left + j] = own_sum

    tasks = tasks_of(task)

    @compiled()
    def reduce(
        values, state, initial, weight_hh, unit, gradient, lengths, maps, exponents, offsets, steps, hidden,
        sets, batch, walks, chunk, first, per_step, reverse,
    ):  # fmt: skip
        plane, chunks = hidden * walks, max(0, (steps + chunk - 1) // chunk - first)
        cuts = _cuts_of(chunks, plane)
        together = chunks * cuts > 1 and span_count(WORK * steps * (kept + states) * states * plane) > 1
        given = (
            cuts, values, state, initial, unit, gradient, lengths, maps, exponents, offsets, steps, plane,
            batch, chunk, first, per_step, reverse,
        )  # fmt: skip
        tasks(chunks * cuts if plane else 0, together, given)

    return reduce

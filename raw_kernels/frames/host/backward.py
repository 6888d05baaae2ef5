"""The twin of a cell's NAME_backward: every sample's walk through every chunk, by the way that `teams` takes
to be the quickest."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.frames.host.samples import (
    blocks_of,
    earliest,
    ends_of_walks,
    give_states,
    going,
    held_values,
    part_width,
    take_states,
    unit_rows,
)
from bppsa_cupy.raw_kernels.frames.host.teams import share, shares
from bppsa_cupy.raw_kernels.frames.host.ways import Ways
from bppsa_cupy.raw_kernels.twins.products.lane_products import multiply_blocks
from bppsa_cupy.raw_kernels.twins.products.packing import pack_parts, pack_rows
from bppsa_cupy.raw_kernels.twins.products.panels import aligned
from bppsa_cupy.raw_kernels.twins.products.row_products import (
    clear_vectors,
    group_of,
    multiply_rows,
    whole_vectors,
)
from bppsa_cupy.raw_kernels.twins.simd.addresses import call_at
from bppsa_cupy.raw_kernels.twins.simd.denormals import flush_denormals, restore_denormals
from bppsa_cupy.raw_kernels.twins.simd.lane_blocks import load_lanes
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, lanes_before, load, select, store
from bppsa_cupy.raw_kernels.twins.simd.prefetch import will_read, will_write
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
from bppsa_cupy.raw_kernels.twins.simd.strided import gather, scatter
from bppsa_cupy.raw_kernels.twins.threads.barrier import have_met, meet, new_barrier, wait
from bppsa_cupy.raw_kernels.twins.threads.crew import tasks_of
from bppsa_cupy.system.compiled import compiled, part
from bppsa_cupy.system.threads import get_threads


def make_backward_lanes(form, full):
    """The steps of a walk of blocks of samples, which are `full` or one that is not."""
    gates, states, saved, numbers, deltas = form.gates, form.states, form.saved, form.parameters, form.deltas
    cell, direct, summed = form.functions.backward, form.carries, gates + len(form.separate)
    separate, reads_after, reads_before = form.separate_bits, form.after_bits, form.before_bits
    sums_of_step, recurrent = form.sums, form.recurrent_bits

    @compiled()
    def steps_of(
        state, values, initial, packed, unit, gradient, ends, delta, carried, through, sums, steps, hidden,
        batch, per_step, reverse, last, length, first, samples, begin, end, start, stop,
    ):  # fmt: skip
        """Rounds `start` to `stop` - 1 of the walk back over `length` steps from `last`: in each, what W_hh
        makes of the round before, then the cell; round `length` has the former alone."""
        count, none = None if full else np.uint64(samples), np.zeros(hidden, state.dtype)
        H, B, L = np.uint64(hidden), np.uint64(batch), np.uint64(LANES)
        plane, block, stride = H * B, H * L, np.uint64(states * hidden) * L
        apart, many, zero = np.uint64(sums_of_step) * block, np.uint64(blocks_of(samples)), np.uint64(0)
        some, least = np.uint64(end - begin) * L, earliest(ends)
        for back in range(start, stop):
            s = last - back
            t = steps - 1 - s if reverse else s
            # Blocks whose samples have all ended, as the last ones of a pack, hand on what they carry.
            if back > 0:
                later = t - 1 if reverse else t + 1
                moved = np.uint64(going(ends, later, LANES)) if later >= least else many
                multiply_blocks(
                    packed, none, end - begin, sums_of_step * hidden, through,
                    np.uint64((back - 1) & 1) * many * apart, L, apart, sums, zero, L, some, moved,
                )  # fmt: skip
                for number in range(moved):
                    i, u = number * stride + np.uint64(begin) * L, number * some
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
            moved = np.uint64(going(ends, t, LANES)) if t >= least else many
            for number in range(moved, many):
                d = np.uint64(t * deltas) * plane + np.uint64(first) + number * L + np.uint64(begin) * B
                for _ in range(begin, end):
                    store_rows(delta, d, plane, load_rows(delta, d, plane, deltas, 0, count), count)
                    d += B
            # Blocks of one unit lie side by side in memory.
            for j in range(np.uint64(begin), np.uint64(end)):
                numbers_of_unit = spread_rows(unit, j, H, numbers)
                for number in range(moved):
                    source = np.uint64(first) + number * L + j * B
                    d = np.uint64(t * deltas) * plane + source
                    i = number * stride + j * L
                    carry = load_rows(carried, i, block, states, ALL, None)
                    g = carry
                    if per_step:
                        g = add_to_first(carry, load_lanes(gradient, np.uint64(t) * plane + source, count))
                    by_x, by_u, handed, by_number = cell(
                        g,
                        load_rows(values, np.uint64(t * saved) * plane + source, plane, saved, ALL, count),
                        load_rows(
                            state, np.uint64(t * states) * plane + source, plane, states, reads_after, count
                        ),
                        load_rows(former, shift + source, plane, states, reads_before, count),
                        numbers_of_unit,
                    )
                    if t >= least:
                        inside = lanes_before(t, ends[np.int64(number * L) :])
                        by_x, by_u = rows_within(inside, by_x), rows_within(inside, by_u)
                        by_number = rows_within(inside, by_number)
                        handed = select_rows(inside, handed, carry)
                    store_rows(carried, i, block, handed, None)
                    chosen = chosen_rows(by_x, by_u, separate, recurrent)
                    store_rows(through, now + number * apart + j * L, block, chosen, None)
                    store_rows(delta, d, plane, by_x, count)
                    store_rows(delta, d + np.uint64(gates) * plane, plane, by_u, count)
                    store_rows(delta, d + np.uint64(summed) * plane, plane, by_number, count)

    return steps_of


@compiled()
def pack_lanes_part(gates, weight_hh, hidden, part, parts, packed):
    """Set weights of one part, as the steps take them."""
    begin, end = share(hidden, parts, part, 1)
    pack_parts(weight_hh, 0, 1, hidden, 1, 0, begin, end, gates * hidden, packed)


def make_backward_rows(form):
    """The steps of a walk of a few samples."""
    gates, states, saved, numbers, deltas = form.gates, form.states, form.saved, form.parameters, form.deltas
    cell, direct, summed = form.functions.backward, form.carries, gates + len(form.separate)
    separate, reads_after, reads_before = form.separate_bits, form.after_bits, form.before_bits
    sums_of_step, recurrent = form.sums, form.recurrent_bits

    @compiled()
    def steps_of(
        state, values, initial, packed, unit, gradient, ends, delta, carried, through, taken, steps, hidden,
        batch, per_step, reverse, last, length, first, count, begin, end, start, stop,
    ):  # fmt: skip
        """Rounds `start` to `stop` - 1 of the walk back over `length` steps from `last`: in each, what W_hh
        makes of the round before, then the cell; round `length` has the former alone."""
        plane, source = hidden * batch, first + begin * batch
        units, width, padded = end - begin, whole_vectors(end - begin), whole_vectors(hidden)
        L, row, spacing = np.uint64(LANES), np.uint64(width), np.uint64(padded)
        sample, apart, none = np.uint64(states) * spacing, np.uint64(sums_of_step) * spacing, np.uint64(0)
        # `taken` has every sample's sums, then every sample's rows: what was saved, states after and before,
        # the gradient and deltas.
        rows = (saved + 2 * states + 1 + deltas) * width
        keeps, after, before = count * width, (count + saved) * width, (count + saved + states) * width
        by_output, made = before + states * width, before + (states + 1) * width
        for back in range(start, stop):
            s = last - back
            t = steps - 1 - s if reverse else s
            former, shift = initial, 0
            if s > 0:
                former, shift = state, (t + 1 if reverse else t - 1) * states * plane
            if back < length:
                for part in range(saved):
                    will_read(values, (t * saved + part) * plane + source, units, batch)
                for part in range(states):
                    if reads_after >> part & 1:
                        will_read(state, (t * states + part) * plane + source, units, batch)
                    if reads_before >> part & 1:
                        will_read(former, part * plane + source + shift, units, batch)
                if per_step:
                    will_read(gradient, t * plane + source, units, batch)
                for part in range(deltas):
                    will_write(delta, (t * deltas + part) * plane + source, units, batch)
                # Other threads have read what was where this one writes.
                now = np.uint64(back & 1) * np.uint64(count) * apart
                for c in range(count):
                    for gate in range(sums_of_step):
                        place = np.int64(now) + (c * sums_of_step + gate) * padded
                        will_write(through, place + begin, units, 1)
            if back > 0:
                later = t - 1 if reverse else t + 1
                now = np.uint64((back - 1) & 1) * np.uint64(count) * apart
                for c in range(count):
                    clear_vectors(taken, np.uint64(c) * row, width)
                    for gate in range(sums_of_step):
                        place = np.int64(now) + (c * sums_of_step + gate) * padded
                        will_read(through, place, hidden, 1)
                multiply_rows(
                    packed, width // LANES, sums_of_step, hidden, through, now, spacing, apart, taken, none,
                    row, going(ends, later, 1), group_of(count), back & 1 == 1,
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
            for part in range(saved):
                place = (t * saved + part) * plane + source
                gather(values, place, batch, count, units, taken, keeps + part * width, rows)
            for part in range(states):
                place = part * plane + source
                if reads_after >> part & 1:
                    later = place + t * states * plane
                    gather(state, later, batch, count, units, taken, after + part * width, rows)
                if reads_before >> part & 1:
                    gather(former, place + shift, batch, count, units, taken, before + part * width, rows)
            if per_step:
                gather(gradient, t * plane + source, batch, count, units, taken, by_output, rows)
            for c in range(count):
                i = np.uint64(c) * sample + np.uint64(begin)
                w = now + np.uint64(c) * apart + np.uint64(begin)
                inside, offset = t < ends[c], np.uint64(c * rows)
                for j in range(none, row, L):
                    m, n = np.uint64(made) + offset + j, offset + j
                    if inside:
                        g = load_rows(carried, i + j, spacing, states, ALL, None)
                        if per_step:
                            g = add_to_first(g, load(taken, np.uint64(by_output) + n))
                        by_x, by_u, by_before, by_number = cell(
                            g,
                            load_rows(taken, np.uint64(keeps) + n, row, saved, ALL, None),
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
                scatter(taken, made + part * width, rows, count, units, delta, target, batch)

    return steps_of


@compiled()
def pack_rows_part(gates, weight_hh, hidden, samples, part, parts, packed):
    """Set weights of one part, as the steps take them."""
    begin, end = share(hidden, parts, part, LANES)
    pack_rows(weight_hh, 0, 1, hidden, 1, 0, begin, end, gates * hidden, packed, group_of(samples))


def make_backward(form):
    """Whole blocks of samples go with samples as lanes; what remains goes likewise, or with units as lanes.
    Walks go side by side, or the threads share out each step of one."""
    # Rows that a unit takes with units as lanes: what was saved, states after and before, a gradient, deltas.
    counts = form.sums, form.states, form.parameters, form.saved + 2 * form.states + 1 + form.deltas
    steps_of = make_backward_lanes(form, True), make_backward_lanes(form, False), make_backward_rows(form)
    ways = Ways(steps_of, before=6, behind=4, integers=13)

    def backward(
        state, gates, initial, weight_hh, unit, gradient, boundary, lengths, wanted, delta, entering, steps,
        hidden, batch, chunk, per_step, reverse, guarded,
    ):  # fmt: skip
        if guarded and not wanted[0]:
            return
        sizes, chunks = (hidden, batch), (steps + chunk - 1) // chunk
        per_step, reverse = int(per_step), int(reverse)
        weight_bytes = form.sums * hidden * hidden * state.itemsize
        for walk in shares(
            get_threads(), form.sums, min(chunk, steps), *sizes, chunks, weight_bytes, form.sums
        ):
            _backward(
                *walk.forms, ways.address(walk.way, state.dtype), *counts, state, gates, initial, weight_hh,
                unit, gradient, boundary, lengths, delta, entering, steps, *sizes, chunk, per_step, reverse,
                walk.firsts, walk.samples, walk.parts,
            )  # fmt: skip

    return backward


@compiled()
def _pack_part(rows, gate_rows, weight_hh, hidden, samples, part, parts, packed):
    if rows is None:
        pack_lanes_part(gate_rows, weight_hh, hidden, part, parts, packed[part])
    else:
        pack_rows_part(gate_rows, weight_hh, hidden, samples, part, parts, packed[part])


@compiled()
def _room_of(rows, taken_rows, like, walks, width, samples):
    """Scratch memory for the rounds of each walk and part; `width` is the number of units of its sums."""
    size = width * blocks_of(samples) * LANES if rows is None else width * samples * (1 + taken_rows)
    return np.zeros((walks, size), like.dtype)


@compiled()
def _place_in(chunks, states, walk, firsts, hidden, batch):
    """Where a walk's elements begin in (chunks, states, hidden, batch)."""
    return walk % chunks * states * hidden * batch + firsts[walk]


@compiled()
def _carried_of(rows, states, boundary, chunks, firsts, samples, hidden, batch):
    """The gradients after the chunk of every walk."""
    carried = np.zeros((firsts.size, states * held_values(rows, hidden, samples)), boundary.dtype)
    for walk in range(firsts.size):
        place = _place_in(chunks, states, walk, firsts, hidden, batch)
        take_states(rows, boundary, place, states, hidden, batch, samples, carried[walk])
    return carried


@compiled()
def _through_of(rows, gate_rows, like, firsts, samples, hidden):
    """What W_hh takes of a round and of the one before, of every walk."""
    return np.zeros((firsts.size, 2 * gate_rows * held_values(rows, hidden, samples)), like.dtype)


@compiled()
def _give_entering(rows, states, carried, entering, chunks, firsts, samples, hidden, batch):
    for walk in range(firsts.size):
        place = _place_in(chunks, states, walk, firsts, hidden, batch)
        give_states(rows, carried[walk], entering, place, states, hidden, batch, samples)


@compiled()
def _rounds_of(
    item, address, packed, numbers, ends, carried, through, room, firsts, state, gates, initial, gradient,
    delta, steps, hidden, batch, chunk, per_step, reverse, samples, parts, grain, start, stride,
):  # fmt: skip
    """Rounds `start` to `start` + `stride` - 1, or to the walk's last, of one part of a walk."""
    walk, part = item // parts, item % parts
    piece = walk % ((steps + chunk - 1) // chunk)
    last = min(piece * chunk + chunk, steps) - 1
    length = last + 1 - piece * chunk
    begin, end = share(hidden, parts, part, grain)
    former = flush_denormals()
    call_at(
        address,
        (
            state, gates, initial, packed[part], numbers, gradient, ends[walk], delta,
            carried[walk], through[walk], room[item], steps, hidden, batch, np.int64(per_step),
            np.int64(reverse), last, length, firsts[walk], samples, begin, end,
            start, min(start + stride, length + 1),
        ),
    )  # fmt: skip
    restore_denormals(former)


@compiled()
def _rounds_together(
    gate_rows, weight_hh, address, packed, numbers, ends, carried, through, room, firsts, state, gates,
    initial, gradient, delta, steps, hidden, batch, chunk, per_step, reverse, samples, parts, grain,
    rounds, barrier, part,
):  # fmt: skip
    """One thread's part of the weights' packing, and of every round of all walks if all threads of the team
    are there."""
    if grain == LANES:
        _pack_part(True, gate_rows, weight_hh, hidden, samples, part, parts, packed)
    else:
        _pack_part(None, gate_rows, weight_hh, hidden, samples, part, parts, packed)
    if not meet(barrier, parts, part):
        return
    for start in range(rounds):
        for walk in range(firsts.size):
            _rounds_of(
                walk * parts + part, address, packed, numbers, ends, carried, through, room, firsts, state,
                gates, initial, gradient, delta, steps, hidden, batch, chunk, per_step, reverse, samples,
                parts, grain, start, 1,
            )  # fmt: skip
        wait(barrier, parts, start + 1)


_all_rounds = tasks_of(_rounds_of)


@part(parallel=True)
def _team(parts, arguments):
    """The rounds of all walks, each shared out among as many threads as there are parts; whether all came."""
    barrier = new_barrier(parts)
    for member in prange(parts):
        _rounds_together(*arguments, barrier, np.int64(member))
    return have_met(barrier)


@compiled()
def _backward(
    rows, team, side_by_side, address, gate_rows, states, numbers, taken_rows, state, gates, initial,
    weight_hh, unit, gradient, boundary, lengths, delta, entering, steps, hidden, batch, chunk,
    per_step, reverse, firsts, samples, parts,
):  # fmt: skip
    chunks, items = (steps + chunk - 1) // chunk, firsts.size * parts
    grain = 1 if rows is None else LANES
    width = part_width(rows, hidden, parts)
    size = width * gate_rows * hidden
    packed = aligned(parts * size, state).reshape(parts, size)
    room = _room_of(rows, taken_rows, state, items, width, samples)
    carried = _carried_of(rows, states, boundary, chunks, firsts, samples, hidden, batch)
    through = _through_of(rows, gate_rows, state, firsts, samples, hidden)
    ends = ends_of_walks(rows, lengths, firsts, samples, steps)
    unit_numbers = unit_rows(rows, unit, numbers, hidden)
    rounds = min(chunk, steps) + 1
    stride, done = rounds if parts == 1 else 1, False
    if team is None:
        _pack_part(rows, gate_rows, weight_hh, hidden, samples, 0, parts, packed)
    else:
        done = _team(
            parts,
            (
                gate_rows, weight_hh, address, packed, unit_numbers, ends, carried, through, room, firsts,
                state, gates, initial, gradient, delta, steps, hidden, batch, chunk, per_step, reverse,
                samples, parts, grain, rounds,
            ),
        )  # fmt: skip
    if not done:
        for start in range(0, rounds, stride):
            _all_rounds(
                items, side_by_side,
                (
                    address, packed, unit_numbers, ends, carried, through, room, firsts, state, gates,
                    initial, gradient, delta, steps, hidden, batch, chunk, per_step, reverse, samples, parts,
                    grain, start, stride,
                ),
            )  # fmt: skip
    _give_entering(rows, states, carried, entering, chunks, firsts, samples, hidden, batch)

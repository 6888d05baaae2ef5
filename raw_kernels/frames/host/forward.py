"""The twin of a cell's NAME_forward: every sample's walk, by the way that `teams` takes to be quickest."""

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
    copy_vectors,
    group_of,
    multiply_rows,
    whole_vectors,
)
from bppsa_cupy.raw_kernels.twins.simd.addresses import call_at
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, lanes_before
from bppsa_cupy.raw_kernels.twins.simd.prefetch import will_read, will_write
from bppsa_cupy.raw_kernels.twins.simd.rows import (
    ALL,
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


def make_forward_lanes(form, full):
    """The steps of a walk of blocks of samples, which are `full` or one that is not."""
    gates, states, saved, numbers = form.gates, form.states, form.saved, form.parameters
    sums_of_step = form.sums
    cell = form.functions.forward

    @compiled()
    def steps_of(
        projected, packed, bias, unit, ends, state, values, held, sums, steps, hidden, batch, reverse,
        first, samples, begin, end, start, stop,
    ):  # fmt: skip
        count = None if full else np.uint64(samples)
        H, B, L, none = np.uint64(hidden), np.uint64(batch), np.uint64(LANES), np.uint64(0)
        plane, block, part = H * B, H * L, np.uint64(end - begin) * L
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
            # Blocks whose samples have all ended, as the last ones of a pack, keep their states.
            some = np.uint64(going(ends, t, LANES)) if t >= least else many
            multiply_blocks(
                packed, bias, sums_of_step * (end - begin), hidden, held, now, L, apart, sums, none, L, width,
                some,
            )  # fmt: skip
            for number in range(some, many):
                source = np.uint64(first) + number * L + np.uint64(begin) * B
                y, v = np.uint64(t * states) * plane + source, np.uint64(t * saved) * plane + source
                i = now + number * apart + np.uint64(begin) * L
                n = later + number * apart + np.uint64(begin) * L
                for _ in range(begin, end):
                    before = load_rows(held, i, block, states, ALL, None)
                    store_rows(held, n, block, before, None)
                    store_rows(state, y, plane, before, count)
                    store_rows(values, v, plane, load_rows(values, v, plane, saved, 0, count), count)
                    y, v, i, n = y + B, v + B, i + L, n + L
            # Blocks of one unit lie side by side in memory.
            for j in range(np.uint64(begin), np.uint64(end)):
                numbers_of_unit = spread_rows(unit, j, H, numbers)
                for number in range(some):
                    source = np.uint64(first) + number * L + j * B
                    x, y = np.uint64(t * gates) * plane + source, np.uint64(t * states) * plane + source
                    place = number * apart + j * L
                    before = load_rows(held, now + place, block, states, ALL, None)
                    after, keep = cell(
                        load_rows(projected, x, plane, gates, ALL, count),
                        load_rows(
                            sums, number * width + (j - np.uint64(begin)) * L, part, sums_of_step, ALL, None
                        ),
                        before,
                        numbers_of_unit,
                    )
                    if t >= least:
                        inside = lanes_before(t, ends[np.int64(number * L) :])
                        after, keep = select_rows(inside, after, before), rows_within(inside, keep)
                    store_rows(held, later + place, block, after, None)
                    store_rows(state, y, plane, after, count)
                    store_rows(values, np.uint64(t * saved) * plane + source, plane, keep, count)

    return steps_of


@compiled()
def pack_lanes_part(gates, weight_hh, bias_hh, hidden, part, parts, packed, bias):
    """Set weights and biases of one part, as the steps take them."""
    begin, end = share(hidden, parts, part, 1)
    pack_parts(weight_hh, 0, hidden, 1, gates, hidden * hidden, begin, end, hidden, packed)
    for gate in range(gates):
        source, target = gate * hidden, gate * (end - begin)
        for j in range(begin, end):
            bias[target + j - begin] = bias_hh[source + j]


def make_forward_rows(form):
    """The steps of a walk of a few samples."""
    gates, states, saved, numbers = form.gates, form.states, form.saved, form.parameters
    sums_of_step = form.sums
    cell = form.functions.forward

    @compiled()
    def steps_of(
        projected, packed, bias, unit, ends, state, values, held, taken, steps, hidden, batch, reverse,
        first, count, begin, end, start, stop,
    ):  # fmt: skip
        plane, source = hidden * batch, first + begin * batch
        length, width, padded = end - begin, whole_vectors(end - begin), whole_vectors(hidden)
        L, row, spacing = np.uint64(LANES), np.uint64(width), np.uint64(padded)
        inputs, sample = gates * width, np.uint64(states * padded)
        summed = sums_of_step * width
        # `taken`: inputs of every sample, then sums, then what is saved.
        sums, keeps = count * inputs, count * (inputs + summed)
        for s in range(start, stop):
            t = steps - 1 - s if reverse else s
            now = np.uint64(s & 1) * np.uint64(count) * sample
            later = np.uint64(count) * sample - now
            some = going(ends, t, 1)
            for c in range(count):
                # Other threads wrote what is read here, and have read what was where this one writes.
                will_read(held, np.int64(now) + c * states * padded, hidden, 1)
                will_write(held, np.int64(later) + c * states * padded + begin, length, 1)
                copy_vectors(bias, np.uint64(0), taken, np.uint64(sums + c * summed), summed)
            for gate in range(gates):
                will_read(projected, (t * gates + gate) * plane + source, length, batch)
            for number in range(states):
                will_write(state, (t * states + number) * plane + source, length, batch)
            for number in range(saved):
                will_write(values, (t * saved + number) * plane + source, length, batch)
            multiply_rows(
                packed, summed // LANES, 1, hidden, held, now, np.uint64(0), sample, taken, np.uint64(sums),
                np.uint64(summed), some, group_of(count), s & 1 == 1,
            )  # fmt: skip
            for gate in range(gates):
                place = (t * gates + gate) * plane + source
                gather(projected, place, batch, count, length, taken, gate * width, inputs)
            for c in range(count):
                x, u, v = (
                    np.uint64(c * inputs),
                    np.uint64(sums + c * summed),
                    np.uint64(keeps + c * saved * width),
                )
                place = np.uint64(c) * sample + np.uint64(begin)
                inside = t < ends[c]
                for j in range(np.uint64(0), row, L):
                    after, keep = (
                        load_rows(held, now + place + j, spacing, states, ALL, None),
                        load_rows(taken, x, row, saved, 0, None),
                    )
                    if inside:
                        after, keep = cell(
                            load_rows(taken, x + j, row, gates, ALL, None),
                            load_rows(taken, u + j, row, sums_of_step, ALL, None),
                            after,
                            load_rows(unit, np.uint64(begin) + j, spacing, numbers, ALL, None),
                        )
                    store_rows(held, later + place + j, spacing, after, None)
                    store_rows(taken, v + j, row, keep, None)
            for number in range(states):
                target, origin = (
                    (t * states + number) * plane + source,
                    np.int64(later) + number * padded + begin,
                )
                scatter(held, origin, states * padded, count, length, state, target, batch)
            for number in range(saved):
                target = (t * saved + number) * plane + source
                scatter(taken, keeps + number * width, saved * width, count, length, values, target, batch)

    return steps_of


@compiled()
def pack_rows_part(gates, weight_hh, bias_hh, hidden, samples, part, parts, packed, bias):
    """Set weights and biases of one part, as the steps take them; zeros after its units."""
    begin, end = share(hidden, parts, part, LANES)
    width = whole_vectors(end - begin)
    pack_rows(weight_hh, 0, hidden, 1, gates, hidden * hidden, begin, end, hidden, packed, group_of(samples))
    for gate in range(gates):
        source, target = gate * hidden, gate * width
        for j in range(width):
            bias[target + j] = bias_hh[source + begin + j] if j < end - begin else bias.dtype.type(0)


def make_forward(form):
    """Whole blocks of samples go with samples as lanes; what remains goes likewise, or with units as lanes.
    Walks go side by side, or the threads share out each step of one."""
    counts = form.sums, form.states, form.gates + form.sums + form.saved, form.parameters
    steps_of = make_forward_lanes(form, True), make_forward_lanes(form, False), make_forward_rows(form)
    ways = Ways(steps_of, before=4, behind=4, integers=10)

    def forward(
        projected, weight_hh, bias_hh, unit, initial, lengths, state, gates, final, steps, hidden, batch,
        reverse,
    ):  # fmt: skip
        sizes, reverse = (steps, hidden, batch), int(reverse)
        weight_bytes = form.sums * hidden * hidden * state.itemsize
        for walk in shares(get_threads(), form.sums, *sizes, 1, weight_bytes, 1):
            _forward(
                *walk.forms, ways.address(walk.way, state.dtype), *counts, projected, weight_hh, bias_hh,
                unit, initial, lengths, state, gates, final, *sizes, reverse, walk.firsts, walk.samples,
                walk.parts,
            )  # fmt: skip

    return forward


@compiled()
def _pack_part(rows, gate_rows, weight_hh, bias_hh, hidden, samples, part, parts, packed, bias):
    if rows is None:
        pack_lanes_part(gate_rows, weight_hh, bias_hh, hidden, part, parts, packed[part], bias[part])
    else:
        pack_rows_part(gate_rows, weight_hh, bias_hh, hidden, samples, part, parts, packed[part], bias[part])


@compiled()
def _room_of(rows, gate_rows, taken_rows, like, walks, width, samples):
    """What the steps of each walk and part need beside, `width` being the rows of its sums."""
    if rows is None:
        return np.empty((walks, width * blocks_of(samples) * LANES), like.dtype)
    return np.zeros((walks, width // gate_rows * samples * taken_rows), like.dtype)


@compiled()
def _held_of(rows, states, initial, firsts, samples, hidden, batch):
    """The states of every walk before its first step, and room for those after it."""
    held = np.zeros((firsts.size, 2 * states * held_values(rows, hidden, samples)), initial.dtype)
    for walk in range(firsts.size):
        take_states(rows, initial, firsts[walk], states, hidden, batch, samples, held[walk])
    return held


@compiled()
def _give_final(rows, states, held, final, steps, firsts, samples, hidden, batch):
    last = (steps & 1) * states * held_values(rows, hidden, samples)
    for walk in range(firsts.size):
        give_states(rows, held[walk, last:], final, firsts[walk], states, hidden, batch, samples)


@compiled()
def _steps_of(
    item, address, packed, bias, numbers, ends, held, room, firsts, projected, state, gates, steps, hidden,
    batch, reverse, samples, parts, grain, start, stride,
):  # fmt: skip
    """Steps `start` to `start` + `stride` - 1 of one part of a walk."""
    walk, part = item // parts, item % parts
    begin, end = share(hidden, parts, part, grain)
    call_at(
        address,
        (
            projected, packed[part], bias[part], numbers, ends[walk], state, gates, held[walk],
            room[item], steps, hidden, batch, np.int64(reverse), firsts[walk], samples, begin, end, start,
            start + stride,
        ),
    )  # fmt: skip


@compiled()
def _steps_together(
    gate_rows, weight_hh, bias_hh, address, packed, bias, numbers, ends, held, room, firsts, projected,
    state, gates, steps, hidden, batch, reverse, samples, parts, grain, barrier, part,
):  # fmt: skip
    """One thread's part of the weights' packing, and of every step of all walks if all threads of the team
    are there."""
    if grain == LANES:
        _pack_part(True, gate_rows, weight_hh, bias_hh, hidden, samples, part, parts, packed, bias)
    else:
        _pack_part(None, gate_rows, weight_hh, bias_hh, hidden, samples, part, parts, packed, bias)
    if not meet(barrier, parts, part):
        return
    for step in range(steps):
        for walk in range(firsts.size):
            _steps_of(
                walk * parts + part, address, packed, bias, numbers, ends, held, room, firsts, projected,
                state, gates, steps, hidden, batch, reverse, samples, parts, grain, step, 1,
            )  # fmt: skip
        wait(barrier, parts, step + 1)


_all_steps = tasks_of(_steps_of)


@part(parallel=True)
def _team(parts, arguments):
    """The steps of all walks, each shared out among as many threads as there are parts; whether all came."""
    barrier = new_barrier(parts)
    for member in prange(parts):
        _steps_together(*arguments, barrier, np.int64(member))
    return have_met(barrier)


@compiled()
def _forward(
    rows, team, side_by_side, address, gate_rows, states, taken_rows, numbers, projected, weight_hh, bias_hh,
    unit, initial, lengths, state, gates, final, steps, hidden, batch, reverse, firsts, samples, parts,
):  # fmt: skip
    items = firsts.size * parts
    grain = 1 if rows is None else LANES
    width = gate_rows * part_width(rows, hidden, parts)
    packed = aligned(parts * width * hidden, state).reshape(parts, width * hidden)
    bias = aligned(parts * width, state).reshape(parts, width)
    room = _room_of(rows, gate_rows, taken_rows, state, items, width, samples)
    held = _held_of(rows, states, initial, firsts, samples, hidden, batch)
    ends = ends_of_walks(rows, lengths, firsts, samples, steps)
    unit_numbers = unit_rows(rows, unit, numbers, hidden)
    stride, done = max(1, steps) if parts == 1 else 1, False
    if team is None:
        _pack_part(rows, gate_rows, weight_hh, bias_hh, hidden, samples, 0, parts, packed, bias)
    else:
        done = _team(
            parts,
            (
                gate_rows, weight_hh, bias_hh, address, packed, bias, unit_numbers, ends, held, room, firsts,
                projected, state, gates, steps, hidden, batch, reverse, samples, parts, grain,
            ),
        )  # fmt: skip
    if not done:
        for start in range(0, steps, stride):
            _all_steps(
                items, side_by_side,
                (
                    address, packed, bias, unit_numbers, ends, held, room, firsts, projected, state, gates,
                    steps, hidden, batch, reverse, samples, parts, grain, start, stride,
                ),
            )  # fmt: skip
    _give_final(rows, states, held, final, steps, firsts, samples, hidden, batch)

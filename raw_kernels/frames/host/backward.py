"""The twin of a cell's NAME_backward: every sample's walk through every chunk, by the way that `teams` takes
to be the quickest."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.frames.host.backward_lanes import make_backward_lanes, pack_lanes_part
from bppsa_cupy.raw_kernels.frames.host.backward_rows import make_backward_rows, pack_rows_part
from bppsa_cupy.raw_kernels.frames.host.samples import (
    blocks_of,
    ends_of_walks,
    give_states,
    held_values,
    part_width,
    take_states,
    units_of_sets,
)
from bppsa_cupy.raw_kernels.frames.host.teams import share, shares
from bppsa_cupy.raw_kernels.frames.host.ways import Ways
from bppsa_cupy.raw_kernels.twins.products.panels import aligned
from bppsa_cupy.raw_kernels.twins.scans.walks import start_of
from bppsa_cupy.raw_kernels.twins.simd.addresses import call_at
from bppsa_cupy.raw_kernels.twins.simd.denormals import flush_denormals, restore_denormals
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES
from bppsa_cupy.raw_kernels.twins.threads.barrier import have_met, meet, new_barrier, wait
from bppsa_cupy.raw_kernels.twins.threads.crew import tasks_of
from bppsa_cupy.system.compiled import compiled, part
from bppsa_cupy.system.threads import get_threads


def make_backward(form):
    """Whole blocks of samples go with samples as lanes; what remains of those that share weights goes
    likewise, or with units as lanes. Walks go side by side, or the threads share out each step of one."""
    # Rows that a unit takes with units as lanes: what was kept, states after and before, a gradient, deltas.
    counts = form.sums, form.states, form.parameters, form.kept + 2 * form.states + 1 + form.deltas
    steps_of = make_backward_lanes(form, True), make_backward_lanes(form, False), make_backward_rows(form)
    ways = Ways(steps_of, before=6, behind=4, integers=14)

    def backward(
        state, gates, initial, weight_hh, unit, gradient, boundary, lengths, wanted, delta, entering, steps,
        hidden, sets, batch, walks, chunk, per_step, reverse, guarded,
    ):  # fmt: skip
        if guarded and not wanted[0]:
            return
        sizes, chunks = (hidden, sets, batch), (steps + chunk - 1) // chunk
        per_step, reverse = int(per_step), int(reverse)
        bytes_of_set = form.sums * hidden * hidden * state.itemsize
        for walk in shares(
            get_threads(), form.sums, min(chunk, steps), *sizes, chunks, bytes_of_set, form.sums
        ):
            _backward(
                *walk.forms, ways.address(walk.way, state.dtype), *counts, state, gates, initial, weight_hh,
                unit, gradient, boundary, lengths, delta, entering, steps, *sizes, chunk, per_step, reverse,
                walk.firsts, walk.samples, walk.parts,
            )  # fmt: skip

    return backward


@compiled()
def _pack_part(rows, gate_rows, weight_hh, hidden, item, parts, packed):
    if rows is None:
        pack_lanes_part(gate_rows, weight_hh, hidden, item, parts, packed[item])
    else:
        pack_rows_part(gate_rows, weight_hh, hidden, item, parts, packed[item])


@compiled()
def _room_of(rows, taken_rows, like, walks, width, samples):
    """Scratch memory for the rounds of each walk and part; `width` is the number of units of its sums."""
    size = width * blocks_of(samples) * LANES if rows is None else width * samples * (1 + taken_rows)
    return np.zeros((walks, size), like.dtype)


@compiled()
def _place_in(chunks, states, walk, firsts, hidden, sets, batch):
    """Where a walk's elements begin in (chunks, states, sets, hidden, batch)."""
    return walk % chunks * states * sets * hidden * batch + start_of(firsts[walk], hidden, batch)


@compiled()
def _carried_of(rows, states, boundary, chunks, firsts, samples, hidden, sets, batch):
    """The gradients after the chunk of every walk."""
    carried = np.zeros((firsts.size, states * held_values(rows, hidden, samples)), boundary.dtype)
    for walk in range(firsts.size):
        place = _place_in(chunks, states, walk, firsts, hidden, sets, batch)
        take_states(rows, boundary, place, states, hidden, sets, batch, samples, carried[walk])
    return carried


@compiled()
def _through_of(rows, gate_rows, like, firsts, samples, hidden):
    """What W_hh takes of a round and of the one before, of every walk."""
    return np.zeros((firsts.size, 2 * gate_rows * held_values(rows, hidden, samples)), like.dtype)


@compiled()
def _give_entering(rows, states, carried, entering, chunks, firsts, samples, hidden, sets, batch):
    for walk in range(firsts.size):
        place = _place_in(chunks, states, walk, firsts, hidden, sets, batch)
        give_states(rows, carried[walk], entering, place, states, hidden, sets, batch, samples)


@compiled()
def _rounds_of(
    item, address, packed, own, ends, carried, through, room, firsts, state, gates, initial, gradient, delta,
    steps, hidden, sets, batch, chunk, per_step, reverse, samples, parts, grain, start, stride,
):  # fmt: skip
    """Rounds `start` to `start` + `stride` - 1, or to the walk's last, of one part of a walk."""
    walk, part = item // parts, item % parts
    number, piece = firsts[walk] // batch, walk % ((steps + chunk - 1) // chunk)
    last = min(piece * chunk + chunk, steps) - 1
    length = last + 1 - piece * chunk
    begin, end = share(hidden, parts, part, grain)
    former = flush_denormals()
    call_at(
        address,
        (
            state, gates, initial, packed[number * parts + part], own[number], gradient, ends[walk], delta,
            carried[walk], through[walk], room[item], steps, hidden, sets, batch, np.int64(per_step),
            np.int64(reverse), last, length, start_of(firsts[walk], hidden, batch), samples, begin, end,
            start, min(start + stride, length + 1),
        ),
    )  # fmt: skip
    restore_denormals(former)


@compiled()
def _rounds_together(
    gate_rows, weight_hh, address, packed, own, ends, carried, through, room, firsts, state, gates,
    initial, gradient, delta, steps, hidden, sets, batch, chunk, per_step, reverse, samples, parts, grain,
    rounds, barrier, part,
):  # fmt: skip
    """One thread's part of the weights' packing, and of every round of all walks if all threads of the team
    are there."""
    for item in range(part, sets * parts, parts):
        if grain == LANES:
            _pack_part(True, gate_rows, weight_hh, hidden, item, parts, packed)
        else:
            _pack_part(None, gate_rows, weight_hh, hidden, item, parts, packed)
    if not meet(barrier, parts, part):
        return
    for start in range(rounds):
        for walk in range(firsts.size):
            _rounds_of(
                walk * parts + part, address, packed, own, ends, carried, through, room, firsts, state, gates,
                initial, gradient, delta, steps, hidden, sets, batch, chunk, per_step, reverse, samples,
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
    weight_hh, unit, gradient, boundary, lengths, delta, entering, steps, hidden, sets, batch, chunk,
    per_step, reverse, firsts, samples, parts,
):  # fmt: skip
    chunks, items = (steps + chunk - 1) // chunk, firsts.size * parts
    grain = 1 if rows is None else LANES
    width = part_width(rows, hidden, parts)
    size = width * gate_rows * hidden
    packed = aligned(sets * parts * size, state).reshape(sets * parts, size)
    room = _room_of(rows, taken_rows, state, items, width, samples)
    carried = _carried_of(rows, states, boundary, chunks, firsts, samples, hidden, sets, batch)
    through = _through_of(rows, gate_rows, state, firsts, samples, hidden)
    ends = ends_of_walks(rows, lengths, firsts, samples, steps, batch)
    own = units_of_sets(rows, unit, numbers, hidden, sets)
    rounds = min(chunk, steps) + 1
    stride, done = rounds if parts == 1 else 1, False
    if team is None:
        for item in range(sets):
            _pack_part(rows, gate_rows, weight_hh, hidden, item, parts, packed)
    else:
        done = _team(
            parts,
            (
                gate_rows, weight_hh, address, packed, own, ends, carried, through, room, firsts, state,
                gates, initial, gradient, delta, steps, hidden, sets, batch, chunk, per_step, reverse,
                samples, parts, grain, rounds,
            ),
        )  # fmt: skip
    if not done:
        for start in range(0, rounds, stride):
            _all_rounds(
                items, side_by_side,
                (
                    address, packed, own, ends, carried, through, room, firsts, state, gates, initial,
                    gradient, delta, steps, hidden, sets, batch, chunk, per_step, reverse, samples, parts,
                    grain, start, stride,
                ),
            )  # fmt: skip
    _give_entering(rows, states, carried, entering, chunks, firsts, samples, hidden, sets, batch)

"""The twin of a cell's NAME_forward: every sample's walk, by the way that `teams` takes to be quickest."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.frames.host.forward_lanes import make_forward_lanes, pack_lanes_part
from bppsa_cupy.raw_kernels.frames.host.forward_rows import make_forward_rows, pack_rows_part
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
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES
from bppsa_cupy.raw_kernels.twins.threads.barrier import have_met, meet, new_barrier, wait
from bppsa_cupy.raw_kernels.twins.threads.crew import tasks_of
from bppsa_cupy.system.compiled import compiled, part
from bppsa_cupy.system.threads import get_threads


def make_forward(form):
    """Whole blocks of samples go with samples as lanes; what remains of those that share weights goes
    likewise, or with units as lanes. Walks go side by side, or the threads share out each step of one."""
    counts = form.sums, form.states, form.gates + form.sums + form.kept, form.parameters
    steps_of = make_forward_lanes(form, True), make_forward_lanes(form, False), make_forward_rows(form)
    ways = Ways(steps_of, before=4, behind=4, integers=11)

    def forward(
        projected, weight_hh, bias_hh, unit, initial, lengths, state, gates, final, steps, hidden, sets,
        batch, walks, reverse,
    ):  # fmt: skip
        sizes, reverse = (steps, hidden, sets, batch), int(reverse)
        bytes_of_set = form.sums * hidden * hidden * state.itemsize
        for walk in shares(get_threads(), form.sums, *sizes, 1, bytes_of_set, 1):
            _forward(
                *walk.forms, ways.address(walk.way, state.dtype), *counts, projected, weight_hh, bias_hh,
                unit, initial, lengths, state, gates, final, *sizes, reverse, walk.firsts, walk.samples,
                walk.parts,
            )  # fmt: skip

    return forward


@compiled()
def _pack_part(rows, gate_rows, weight_hh, bias_hh, hidden, item, parts, packed, bias):
    if rows is None:
        pack_lanes_part(gate_rows, weight_hh, bias_hh, hidden, item, parts, packed[item], bias[item])
    else:
        pack_rows_part(gate_rows, weight_hh, bias_hh, hidden, item, parts, packed[item], bias[item])


@compiled()
def _room_of(rows, gate_rows, taken_rows, like, walks, width, samples):
    """What the steps of each walk and part need beside, `width` being the rows of its sums."""
    if rows is None:
        return np.empty((walks, width * blocks_of(samples) * LANES), like.dtype)
    return np.zeros((walks, width // gate_rows * samples * taken_rows), like.dtype)


@compiled()
def _held_of(rows, states, initial, firsts, samples, hidden, sets, batch):
    """The states of every walk before its first step, and room for those after it."""
    held = np.zeros((firsts.size, 2 * states * held_values(rows, hidden, samples)), initial.dtype)
    for walk in range(firsts.size):
        place = start_of(firsts[walk], hidden, batch)
        take_states(rows, initial, place, states, hidden, sets, batch, samples, held[walk])
    return held


@compiled()
def _give_final(rows, states, held, final, steps, firsts, samples, hidden, sets, batch):
    last = (steps & 1) * states * held_values(rows, hidden, samples)
    for walk in range(firsts.size):
        place = start_of(firsts[walk], hidden, batch)
        give_states(rows, held[walk, last:], final, place, states, hidden, sets, batch, samples)


@compiled()
def _steps_of(
    item, address, packed, bias, own, ends, held, room, firsts, projected, state, gates, steps, hidden, sets,
    batch, reverse, samples, parts, grain, start, stride,
):  # fmt: skip
    """Steps `start` to `start` + `stride` - 1 of one part of a walk."""
    walk, part = item // parts, item % parts
    number, first = firsts[walk] // batch, start_of(firsts[walk], hidden, batch)
    piece, (begin, end) = number * parts + part, share(hidden, parts, part, grain)
    call_at(
        address,
        (
            projected, packed[piece], bias[piece], own[number], ends[walk], state, gates, held[walk],
            room[item], steps, hidden, sets, batch, np.int64(reverse), first, samples, begin, end, start,
            start + stride,
        ),
    )  # fmt: skip


@compiled()
def _steps_together(
    gate_rows, weight_hh, bias_hh, address, packed, bias, own, ends, held, room, firsts, projected,
    state, gates, steps, hidden, sets, batch, reverse, samples, parts, grain, barrier, part,
):  # fmt: skip
    """One thread's part of the weights' packing, and of every step of all walks if all threads of the team
    are there."""
    for item in range(part, sets * parts, parts):
        if grain == LANES:
            _pack_part(True, gate_rows, weight_hh, bias_hh, hidden, item, parts, packed, bias)
        else:
            _pack_part(None, gate_rows, weight_hh, bias_hh, hidden, item, parts, packed, bias)
    if not meet(barrier, parts, part):
        return
    for step in range(steps):
        for walk in range(firsts.size):
            _steps_of(
                walk * parts + part, address, packed, bias, own, ends, held, room, firsts, projected, state,
                gates, steps, hidden, sets, batch, reverse, samples, parts, grain, step, 1,
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
    unit, initial, lengths, state, gates, final, steps, hidden, sets, batch, reverse, firsts, samples, parts,
):  # fmt: skip
    items = firsts.size * parts
    grain = 1 if rows is None else LANES
    width = gate_rows * part_width(rows, hidden, parts)
    packed = aligned(sets * parts * width * hidden, state).reshape(sets * parts, width * hidden)
    bias = aligned(sets * parts * width, state).reshape(sets * parts, width)
    room = _room_of(rows, gate_rows, taken_rows, state, items, width, samples)
    held = _held_of(rows, states, initial, firsts, samples, hidden, sets, batch)
    ends = ends_of_walks(rows, lengths, firsts, samples, steps, batch)
    own = units_of_sets(rows, unit, numbers, hidden, sets)
    stride, done = max(1, steps) if parts == 1 else 1, False
    if team is None:
        for item in range(sets):
            _pack_part(rows, gate_rows, weight_hh, bias_hh, hidden, item, parts, packed, bias)
    else:
        done = _team(
            parts,
            (
                gate_rows, weight_hh, bias_hh, address, packed, bias, own, ends, held, room, firsts,
                projected, state, gates, steps, hidden, sets, batch, reverse, samples, parts, grain,
            ),
        )  # fmt: skip
    if not done:
        for start in range(0, steps, stride):
            _all_steps(
                items, side_by_side,
                (
                    address, packed, bias, own, ends, held, room, firsts, projected, state, gates, steps,
                    hidden, sets, batch, reverse, samples, parts, grain, start, stride,
                ),
            )  # fmt: skip
    _give_final(rows, states, held, final, steps, firsts, samples, hidden, sets, batch)

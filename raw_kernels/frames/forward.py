"""The twin of a cell's NAME_forward: every sample's walk, by the way that `teams` takes to be quickest."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.frames.forward_lanes import make_forward_lanes, pack_lanes_part
from bppsa_cupy.raw_kernels.frames.forward_rows import make_forward_rows, pack_rows_part
from bppsa_cupy.raw_kernels.frames.samples import (
    blocks_of,
    ends_of_walks,
    give_states,
    held_values,
    part_width,
    take_states,
    units_of_sets,
)
from bppsa_cupy.raw_kernels.frames.teams import ROWS, share, shares
from bppsa_cupy.raw_kernels.frames.ways import Ways
from bppsa_cupy.raw_kernels.twins.addresses import call_at
from bppsa_cupy.raw_kernels.twins.barrier import have_met, meet, new_barrier, wait
from bppsa_cupy.raw_kernels.twins.crew import tasks_of
from bppsa_cupy.raw_kernels.twins.lanes import LANES
from bppsa_cupy.raw_kernels.twins.panels import aligned
from bppsa_cupy.raw_kernels.twins.walks import start_of
from bppsa_cupy.system.compiled import compiled


def make_forward(form):
    """Whole blocks of samples go with samples as lanes; what remains of those that share weights goes
    likewise, or with units as lanes. Walks go side by side, or the threads share out each step of one."""
    counts = form.gates, form.states, form.kept, form.parameters
    steps_of = make_forward_lanes(form, True), make_forward_lanes(form, False), make_forward_rows(form)
    ways = Ways(form.gates, steps_of, before=4, behind=4, integers=11)

    def forward(
        projected, weight_hh, bias_hh, unit, initial, lengths, state, gates, final, steps, hidden, sets,
        batch, walks, reverse,
    ):  # fmt: skip
        _forward(
            *ways.addresses(state.dtype, hidden, batch), *counts, projected, weight_hh, bias_hh, unit,
            initial, lengths, state, gates, final, steps, hidden, sets, batch, reverse,
        )  # fmt: skip

    return forward


@compiled()
def _pack_part(way, gate_rows, weight_hh, bias_hh, hidden, item, parts, packed, bias):
    if way == ROWS:
        pack_rows_part(gate_rows, weight_hh, bias_hh, hidden, item, parts, packed[item], bias[item])
    else:
        pack_lanes_part(gate_rows, weight_hh, bias_hh, hidden, item, parts, packed[item], bias[item])


@compiled()
def _room_of(way, gate_rows, kept_rows, like, walks, width, samples):
    """What the steps of each walk and part need beside, `width` being the rows of its sums."""
    if way == ROWS:
        return np.zeros((walks, width // gate_rows * samples * (2 * gate_rows + kept_rows)), like.dtype)
    return np.empty((walks, width * blocks_of(samples) * LANES), like.dtype)


@compiled()
def _held_of(way, states, initial, firsts, samples, hidden, sets, batch):
    """The states of every walk before its first step, and room for those after it."""
    held = np.zeros((firsts.size, 2 * states * held_values(way, hidden, samples)), initial.dtype)
    for walk in range(firsts.size):
        place = start_of(firsts[walk], hidden, batch)
        take_states(way, initial, place, states, hidden, sets, batch, samples, held[walk])
    return held


@compiled()
def _give_final(way, states, held, final, steps, firsts, samples, hidden, sets, batch):
    last = (steps & 1) * states * held_values(way, hidden, samples)
    for walk in range(firsts.size):
        place = start_of(firsts[walk], hidden, batch)
        give_states(way, held[walk, last:], final, place, states, hidden, sets, batch, samples)


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
    way, gate_rows, weight_hh, bias_hh, address, packed, bias, own, ends, held, room, firsts, projected,
    state, gates, steps, hidden, sets, batch, reverse, samples, parts, grain, barrier, part,
):  # fmt: skip
    """One thread's part of the weights' packing, and of every step of all walks if all threads of the team
    are there."""
    for number in range(sets):
        _pack_part(way, gate_rows, weight_hh, bias_hh, hidden, number * parts + part, parts, packed, bias)
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


@compiled(parallel=True)
def _forward(
    full_steps, partial_steps, rows_steps, gate_rows, states, kept_rows, numbers, projected, weight_hh,
    bias_hh, unit, initial, lengths, state, gates, final, steps, hidden, sets, batch, reverse,
):  # fmt: skip
    weight_bytes = gate_rows * hidden * hidden * state.itemsize
    for remains in range(2):
        way, firsts, samples, parts = shares(
            gate_rows, steps, hidden, sets, batch, 1, weight_bytes, 1, remains
        )
        items = firsts.size * parts
        if not items:
            continue
        address = full_steps if not remains else rows_steps if way == ROWS else partial_steps
        grain = LANES if way == ROWS else 1
        width = gate_rows * part_width(way, hidden, parts)
        packed = aligned(sets * parts * width * hidden, state).reshape(sets * parts, width * hidden)
        bias = aligned(sets * parts * width, state).reshape(sets * parts, width)
        room = _room_of(way, gate_rows, kept_rows, state, items, width, samples)
        held = _held_of(way, states, initial, firsts, samples, hidden, sets, batch)
        ends = ends_of_walks(way, lengths, firsts, samples, steps, batch)
        own = units_of_sets(way, unit, numbers, hidden, sets)
        stride, done = max(1, steps) if parts == 1 else 1, False
        if parts > 1:
            barrier = new_barrier(parts)
            for part in prange(parts):
                _steps_together(
                    way, gate_rows, weight_hh, bias_hh, address, packed, bias, own, ends, held, room, firsts,
                    projected, state, gates, steps, hidden, sets, batch, reverse, samples, parts, grain,
                    barrier, np.int64(part),
                )  # fmt: skip
            done = have_met(barrier)
        else:
            for item in range(sets):
                _pack_part(way, gate_rows, weight_hh, bias_hh, hidden, item, parts, packed, bias)
        if not done:
            for start in range(0, steps, stride):
                _all_steps(
                    items, items > 1,
                    (
                        address, packed, bias, own, ends, held, room, firsts, projected, state, gates, steps,
                        hidden, sets, batch, reverse, samples, parts, grain, start, stride,
                    ),
                )  # fmt: skip
        _give_final(way, states, held, final, steps, firsts, samples, hidden, sets, batch)

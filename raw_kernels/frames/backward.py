"""The twin of a cell's NAME_backward: every sample's walk through every chunk, by the way that `teams` takes
to be the quickest."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.frames.backward_lanes import make_backward_lanes
from bppsa_cupy.raw_kernels.frames.backward_rows import make_backward_rows
from bppsa_cupy.raw_kernels.frames.samples import (
    blocks_of,
    ends_of_walks,
    give_states,
    held_values,
    take_states,
    units_of_sets,
)
from bppsa_cupy.raw_kernels.frames.teams import FULL, ROWS, share, shares
from bppsa_cupy.raw_kernels.twins.lanes import LANES, never_inlined
from bppsa_cupy.raw_kernels.twins.walks import start_of
from bppsa_cupy.system.compiled import compiled


def make_backward(form):
    """Whole blocks of samples go with samples as lanes; what remains of those that share weights goes
    likewise, or with units as lanes. Walks go side by side, or the threads share out each step of one."""
    gate_rows, states, numbers = form.gates, form.states, form.parameters
    taken_rows = form.kept + 2 * form.states + 1 + form.deltas
    lanes_steps, lanes_weights = make_backward_lanes(form)
    rows_steps, rows_weights = make_backward_rows(form)

    @compiled()
    def work(
        way, state, kept, initial, packed, unit, gradient, ends, delta, carried, through, room, none, steps,
        hidden, sets, batch, per_step, reverse, last, length, first, samples, parts, part, start, stop,
    ):  # fmt: skip
        """Rounds `start` to `stop` - 1 of one part of a walk's units."""
        never_inlined()
        begin, end = share(hidden, parts, part, LANES if way == ROWS else 1)
        if way == ROWS:
            rows_steps(
                state, kept, initial, packed, unit, gradient, ends, delta, carried, through, room, steps,
                hidden, sets, batch, per_step, reverse, last, length, first, samples, begin, end, start, stop,
            )  # fmt: skip
        elif way == FULL:
            lanes_steps(
                state, kept, initial, packed, unit, gradient, ends, delta, carried, through, room, none,
                steps, hidden, sets, batch, per_step, reverse, last, length, first, blocks_of(samples), None,
                begin, end, start, stop,
            )  # fmt: skip
        else:
            lanes_steps(
                state, kept, initial, packed, unit, gradient, ends, delta, carried, through, room, none,
                steps, hidden, sets, batch, per_step, reverse, last, length, first, 1, np.uint64(samples),
                begin, end, start, stop,
            )  # fmt: skip

    @compiled()
    def weights_of(way, weight_hh, hidden, sets, parts):
        if way == ROWS:
            return rows_weights(weight_hh, hidden, sets, parts)
        return lanes_weights(weight_hh, hidden, sets, parts)

    @compiled()
    def room_of(way, like, walks, width, samples):
        """What the rounds of each walk and part need beside, `width` being the units of its sums."""
        size = width * (samples + taken_rows) if way == ROWS else width * blocks_of(samples) * LANES
        return np.zeros((walks, size), like.dtype)

    @compiled()
    def place_in(chunks, walk, firsts, hidden, sets, batch):
        """Where a walk's elements begin in (chunks, states, sets, hidden, batch)."""
        return walk % chunks * states * sets * hidden * batch + start_of(firsts[walk], hidden, batch)

    @compiled()
    def carried_of(way, boundary, chunks, firsts, samples, hidden, sets, batch):
        """The gradients behind the chunk of every walk."""
        carried = np.zeros((firsts.size, states * held_values(way, hidden, samples)), boundary.dtype)
        for walk in range(firsts.size):
            place = place_in(chunks, walk, firsts, hidden, sets, batch)
            take_states(way, boundary, place, states, hidden, sets, batch, samples, carried[walk])
        return carried

    @compiled()
    def give_entering(way, carried, entering, chunks, firsts, samples, hidden, sets, batch):
        for walk in range(firsts.size):
            place = place_in(chunks, walk, firsts, hidden, sets, batch)
            give_states(way, carried[walk], entering, place, states, hidden, sets, batch, samples)

    @compiled(parallel=True)
    def backward(
        state, gates, initial, weight_hh, unit, gradient, boundary, lengths, delta, entering, steps, hidden,
        sets, batch, chunk, per_step, reverse,
    ):  # fmt: skip
        chunks = (steps + chunk - 1) // chunk
        weight_bytes, none = gate_rows * hidden * hidden * state.itemsize, np.zeros(hidden, state.dtype)
        for remains in range(2):
            way, firsts, samples, parts = shares(
                gate_rows, hidden, sets, batch, chunks, weight_bytes, remains
            )
            packed = weights_of(way, weight_hh, hidden, sets, parts)
            width = packed.shape[1] // max(1, gate_rows * hidden)
            room = room_of(way, state, firsts.size * parts, width, samples)
            carried = carried_of(way, boundary, chunks, firsts, samples, hidden, sets, batch)
            values = 2 * gate_rows * held_values(way, hidden, samples)
            through = np.zeros((firsts.size, values), state.dtype)
            ends = ends_of_walks(way, lengths, firsts, samples, steps, batch)
            own = units_of_sets(way, unit, numbers, hidden, sets)
            stride = chunk + 1 if parts == 1 else 1
            for start in range(0, min(chunk, steps) + 1, stride):
                for item in prange(firsts.size * parts):
                    walk, part = np.int64(item) // parts, np.int64(item) % parts
                    number, piece = firsts[walk] // batch, walk % chunks
                    last = min(piece * chunk + chunk, steps) - 1
                    length = last + 1 - piece * chunk
                    work(
                        way, state, gates, initial, packed[number * parts + part], own[number], gradient,
                        ends[walk], delta, carried[walk], through[walk], room[item], none, steps, hidden,
                        sets, batch, per_step, reverse, last, length, start_of(firsts[walk], hidden, batch),
                        samples, parts, part, start, min(start + stride, length + 1),
                    )  # fmt: skip
            give_entering(way, carried, entering, chunks, firsts, samples, hidden, sets, batch)

    return backward

"""What the walks of a frame hold of states: whole blocks of samples as lanes, or a sample's units side by
side."""

import numpy as np

from bppsa_cupy.raw_kernels.frames.teams import ROWS, largest_share
from bppsa_cupy.raw_kernels.twins.lane_blocks import copy_from_lanes, copy_to_lanes
from bppsa_cupy.raw_kernels.twins.lanes import LANES
from bppsa_cupy.raw_kernels.twins.row_products import whole_vectors
from bppsa_cupy.raw_kernels.twins.strided import gather, scatter
from bppsa_cupy.system.compiled import compiled


@compiled()
def blocks_of(samples):
    """Blocks that hold so many samples."""
    return (samples + LANES - 1) // LANES


@compiled()
def held_values(way, hidden, samples):
    """Values that a row of units of so many samples takes."""
    return samples * whole_vectors(hidden) if way == ROWS else blocks_of(samples) * LANES * hidden


@compiled()
def part_width(way, hidden, parts):
    """Values that a row of the units of a part takes, at most."""
    return (
        whole_vectors(largest_share(hidden, parts, LANES)) if way == ROWS else largest_share(hidden, parts, 1)
    )


@compiled()
def take_states(way, source, place, states, hidden, sets, batch, samples, held):
    """Copy (states, sets, hidden, batch) from `place` on to what a walk of so many samples holds."""
    plane = sets * hidden * batch
    if way != ROWS:
        blocks = blocks_of(samples)
        count = samples - (blocks - 1) * LANES
        copy_to_lanes(source, place, plane, states, batch, hidden, blocks, count, held)
        return
    whole = whole_vectors(hidden)
    for part in range(states):
        gather(source, place + part * plane, batch, samples, hidden, held, part * whole, states * whole)


@compiled()
def give_states(way, held, target, place, states, hidden, sets, batch, samples):
    """The inverse of `take_states`."""
    plane = sets * hidden * batch
    if way != ROWS:
        blocks = blocks_of(samples)
        count = samples - (blocks - 1) * LANES
        copy_from_lanes(held, target, place, plane, states, batch, hidden, blocks, count)
        return
    whole = whole_vectors(hidden)
    for part in range(states):
        scatter(held, part * whole, states * whole, samples, hidden, target, place + part * plane, batch)


@compiled()
def ends_of_walks(way, lengths, firsts, samples, steps, batch):
    """The lengths of the samples of each walk; in whole blocks unless units are the lanes."""
    blocks = blocks_of(samples)
    ends = np.full((firsts.size, samples if way == ROWS else blocks * LANES), steps, np.int64)
    for walk in range(firsts.size):
        first = firsts[walk] % batch
        ends[walk, :samples] = lengths[first : first + samples]
    return ends


@compiled()
def units_of_sets(way, unit, numbers, hidden, sets):
    """Unit parameters (sets, numbers, hidden), each row in whole vectors where units are the lanes."""
    width = whole_vectors(hidden) if way == ROWS else hidden
    own = np.zeros((sets, numbers * width), unit.dtype)
    for number in range(sets):
        for row in range(numbers):
            first = (number * numbers + row) * hidden
            own[number, row * width : row * width + hidden] = unit[first : first + hidden]
    return own

"""What the walks of a frame hold of states: whole blocks of samples as lanes, or a sample's units side by
side.

Of each function only what a walk needs is compiled: `rows` is None where samples are its lanes, True where
units are.
"""

import numpy as np

from bppsa_cupy.raw_kernels.frames.host.teams import largest_share
from bppsa_cupy.raw_kernels.twins.products.row_products import whole_vectors
from bppsa_cupy.raw_kernels.twins.simd.lane_blocks import copy_from_lanes, copy_to_lanes
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES
from bppsa_cupy.raw_kernels.twins.simd.strided import gather, scatter
from bppsa_cupy.system.compiled import compiled


@compiled()
def blocks_of(samples):
    """Blocks that hold so many samples."""
    return (samples + LANES - 1) // LANES


@compiled()
def held_values(rows, hidden, samples):
    """Values that a row of units of so many samples takes."""
    if rows is None:
        return blocks_of(samples) * LANES * hidden
    return samples * whole_vectors(hidden)


@compiled()
def part_width(rows, hidden, parts):
    """Values that a row of the units of a part takes, at most."""
    if rows is None:
        return largest_share(hidden, parts, 1)
    return whole_vectors(largest_share(hidden, parts, LANES))


@compiled()
def take_states(rows, source, place, states, hidden, batch, samples, held):
    """Copy (states, hidden, batch) from `place` on to what a walk of so many samples holds."""
    plane = hidden * batch
    if rows is None:
        blocks = blocks_of(samples)
        count = samples - (blocks - 1) * LANES
        copy_to_lanes(source, place, plane, states, batch, hidden, blocks, count, held)
        return
    padded = whole_vectors(hidden)
    for part in range(states):
        gather(source, place + part * plane, batch, samples, hidden, held, part * padded, states * padded)


@compiled()
def give_states(rows, held, target, place, states, hidden, batch, samples):
    """The inverse of `take_states`."""
    plane = hidden * batch
    if rows is None:
        blocks = blocks_of(samples)
        count = samples - (blocks - 1) * LANES
        copy_from_lanes(held, target, place, plane, states, batch, hidden, blocks, count)
        return
    padded = whole_vectors(hidden)
    for part in range(states):
        scatter(held, part * padded, states * padded, samples, hidden, target, place + part * plane, batch)


@compiled()
def ends_of_walks(rows, lengths, firsts, samples, steps):
    """The lengths of the samples of each walk; in whole blocks unless units are the lanes."""
    width = blocks_of(samples) * LANES if rows is None else samples
    ends = np.empty((firsts.size, width), np.int64)
    for walk in range(firsts.size):
        for sample in range(width):
            ends[walk, sample] = lengths[firsts[walk] + sample] if sample < samples else steps
    return ends


@compiled()
def earliest(ends):
    """The least of the lengths."""
    least = ends[0]
    for end in ends:
        least = min(least, end)
    return least


@compiled()
def going(ends, t, width):
    """Blocks of `width` samples up to the last of which a sample has not ended at time `t`."""
    count = ends.size // width
    while count > 0:
        for sample in range((count - 1) * width, count * width):
            if ends[sample] > t:
                return count
        count -= 1
    return 0


@compiled()
def unit_rows(rows, unit, numbers, hidden):
    """Unit parameters (numbers, hidden), each row in whole vectors where units are the lanes."""
    width = hidden if rows is None else whole_vectors(hidden)
    padded = np.zeros(numbers * width, unit.dtype)
    for row in range(numbers):
        for i in range(hidden):
            padded[row * width + i] = unit[row * hidden + i]
    return padded

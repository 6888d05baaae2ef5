"""How the walks over time are shared out among lanes and threads, by what was measured on two processors."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES
from bppsa_cupy.system.compiled import compiled

#: How a walk goes: blocks of samples that are full, one that is not, or with units as lanes.
FULL, PARTIAL, ROWS = 0, 1, 2

#: A unit's cell costs as much as so many multiply-adds of lanes a gate, with samples as lanes; with units as
#: lanes, copies included.
CELL, CELL_OF_ROWS = 35, 85

#: Multiply-adds of lanes in a step that make a barrier among threads worth while, and as many more for each
#: number that it hands from one core to others, with units and with samples as lanes.
BARRIER, HANDED_BY_ROWS, HANDED_BY_LANES = 8800, 14, 6

#: Multiply-adds of lanes that a walk must save for sleeping threads to be woken.
WAKING = 1 << 20

#: Blocks of samples that one thread takes through a step together, at most: their lines of memory lie side by
#: side, and a processor that is asked for one brings its neighbours too.
TOGETHER = 4

#: Bytes of weights from which on threads that have a part of it each are worth more than threads
#: that have a block of samples each.
FAR_WEIGHTS = 1 << 20


@compiled()
def share(units, parts, part, grain):
    """The units [begin, end) of one part, in multiples of `grain`."""
    grains = (units + grain - 1) // grain
    return min(units, grains * part // parts * grain), min(units, grains * (part + 1) // parts * grain)


@compiled()
def largest_share(units, parts, grain):
    """The most units that a part has."""
    grains = (units + grain - 1) // grain
    return min(units, (grains + parts - 1) // parts * grain)


def step_of_rows(gates, hidden, samples):
    """What a step of a few samples costs with units as lanes."""
    return samples * gates * ((hidden + LANES - 1) // LANES) * (hidden + CELL_OF_ROWS)


def step_of_lanes(gates, hidden, blocks):
    """What a step of blocks of samples costs with samples as lanes."""
    return blocks * gates * hidden * (hidden + CELL)


def way_of_rest(gates, hidden, samples):
    """The way of fewer samples than a block has."""
    return ROWS if step_of_rows(gates, hidden, samples) < step_of_lanes(gates, hidden, 1) else PARTIAL


def team(threads, steps, cost, least, walks, weight_bytes, units):
    """How many of the threads share out each step of a walk: 1 where walks go alone. `walks` are those that
    could go side by side; a step of all of them costs `cost`, and is shared out from `least`."""
    threads = min(threads, units)
    if threads < 2 or steps * (cost - least) < 2 * WAKING:
        return 1
    return threads if walks < threads or weight_bytes >= FAR_WEIGHTS else 1


def together(threads, blocks, walks):
    """Blocks of samples that go together, of a walk of so many blocks: as many as leave all threads some of
    the `walks` that there are of each."""
    count = min(blocks, TOGETHER)
    while count > 1 and (blocks % count or blocks // count * walks < threads):
        count -= 1
    return count


class Shares(NamedTuple):
    """How walks over time run on lanes and threads: those of whole blocks of samples, or those of the rest.

    way      FULL, PARTIAL or ROWS
    firsts   each walk's first sample, as many in a row as there are chunks
    samples  of a walk
    parts    of its units, a thread each
    forms    which compiled form such walks need, each True or None: units as lanes, a team of threads for
             each, walks side by side
    """

    way: int
    firsts: np.ndarray
    samples: int
    parts: int
    forms: tuple


def _shares(way, firsts, samples, parts):
    forms = way == ROWS, parts > 1, firsts.size * parts > 1
    return Shares(way, firsts, samples, parts, tuple(needed or None for needed in forms))


@lru_cache(maxsize=256)
def shares(threads, gates, steps, hidden, batch, chunks, weight_bytes, handed):
    """The shares of every kind of walk that there is, in `chunks` of so many steps. A step hands on `handed`
    numbers a unit and sample."""
    sizes = threads, gates, steps, hidden, batch, chunks, weight_bytes, handed
    return [share for share in (_of_blocks(*sizes), _of_rest(*sizes)) if share.firsts.size]


def _of_blocks(threads, gates, steps, hidden, batch, chunks, weight_bytes, handed):
    full = batch // LANES
    if not full:
        return _shares(FULL, np.empty(0, np.int64), LANES, 1)
    cost = step_of_lanes(gates, hidden, full)
    least = BARRIER + HANDED_BY_LANES * handed * hidden * full * LANES
    parts = team(threads, steps, cost, least, chunks * full, weight_bytes, hidden)
    count = full if parts > 1 else together(threads, full, chunks)
    firsts = np.repeat(np.arange(full // count), chunks) * count * LANES
    return _shares(FULL, firsts, count * LANES, parts)


def _of_rest(threads, gates, steps, hidden, batch, chunks, weight_bytes, handed):
    rest, parts = batch % LANES, 1
    way = way_of_rest(gates, hidden, rest)
    if way == ROWS:
        # Weights are loaded once for all samples, which costs as much as one more.
        cost, vectors = step_of_rows(gates, hidden, rest + 1), (hidden + LANES - 1) // LANES
        least = BARRIER + HANDED_BY_ROWS * handed * hidden * rest
        parts = team(threads, steps, cost, least, chunks, weight_bytes, vectors)
    return _shares(way, np.full(chunks if rest else 0, batch - rest), rest, parts)

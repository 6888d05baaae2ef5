"""How the walks over time are shared out among lanes and threads, by what was measured on two processors."""

import numpy as np

from bppsa_cupy.raw_kernels.twins.lanes import LANES
from bppsa_cupy.raw_kernels.twins.threads import thread_count
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

#: Bytes of a set of weights from which on threads that have a part of it each are worth more than threads
#: that have a block of samples each.
FAR_WEIGHTS = 1 << 20


@compiled()
def share(units, parts, part, grain):
    """The units [begin, end) of one part, in multiples of `grain`."""
    whole = (units + grain - 1) // grain
    return min(units, whole * part // parts * grain), min(units, whole * (part + 1) // parts * grain)


@compiled()
def largest_share(units, parts, grain):
    """The most units that a part has."""
    whole = (units + grain - 1) // grain
    return min(units, (whole + parts - 1) // parts * grain)


@compiled()
def step_of_rows(gates, hidden, samples):
    """What a step of a few samples costs with units as lanes."""
    return samples * gates * ((hidden + LANES - 1) // LANES) * (hidden + CELL_OF_ROWS)


@compiled()
def step_of_lanes(gates, hidden, blocks):
    """What a step of blocks of samples costs with samples as lanes."""
    return blocks * gates * hidden * (hidden + CELL)


@compiled()
def way_of_rest(gates, hidden, samples):
    """The way of fewer samples than a block has."""
    return ROWS if step_of_rows(gates, hidden, samples) < step_of_lanes(gates, hidden, 1) else PARTIAL


@compiled()
def team(steps, cost, least, walks, weight_bytes, units):
    """Threads that share out each step of a walk: 1 where walks go alone. `walks` are those that could go
    side by side, a step of all that share a set of weights costs `cost`, and is shared out from `least`."""
    threads = min(thread_count(), units)
    if threads < 2 or steps * (cost - least) < 2 * WAKING:
        return 1
    return threads if walks < threads or weight_bytes >= FAR_WEIGHTS else 1


@compiled()
def together(blocks, walks):
    """Blocks of samples that go together, of a walk of so many blocks: as many as leave all threads some of
    the `walks` that there are of each."""
    count = min(blocks, TOGETHER)
    while count > 1 and (blocks % count or blocks // count * walks < thread_count()):
        count -= 1
    return count


@compiled()
def shares(gates, steps, hidden, sets, batch, chunks, weight_bytes, handed, remains):
    """How the walks of whole blocks go, or where `remains` those of the samples behind them: the way, each
    walk's first sample (`chunks` of them in a row, of so many steps), the samples of a walk, and the parts
    of its units. A step hands on `handed` numbers a unit and sample."""
    full, rest = batch // LANES, batch % LANES
    way, samples, each, parts = FULL, LANES, full, 1
    if remains:
        way, samples, each = way_of_rest(gates, hidden, rest), rest, 1 if rest else 0
        if way == ROWS:
            # Weights are loaded once for all samples, which costs as much as one more.
            cost, vectors = step_of_rows(gates, hidden, rest + 1), (hidden + LANES - 1) // LANES
            least = BARRIER + HANDED_BY_ROWS * handed * hidden * rest
            parts = team(steps, cost, least, chunks * sets, weight_bytes, vectors)
    else:
        cost, least = (
            step_of_lanes(gates, hidden, full),
            BARRIER + HANDED_BY_LANES * handed * hidden * full * LANES,
        )
        parts = team(steps, cost, least, chunks * sets * full, weight_bytes, hidden)
        count = full if parts > 1 else max(1, together(full, chunks * sets))
        samples, each = count * LANES, full // count if full else 0
    firsts = np.empty(chunks * sets * each, np.int64)
    for walk in range(firsts.size):
        number = walk // chunks
        firsts[walk] = number // each * batch + (full * LANES if remains else number % each * samples)
    return way, firsts, samples, parts

"""What a way back over time takes on several ranks, and the chunk length by which it takes the least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from operator import sub

from bppsa_cupy.plan.cost_model import Link
from bppsa_cupy.processors.models import Processor
from bppsa_cupy.timescan import WalkSize

#: By what a chunk length may be slower than the quickest where more ranks hold steps by it.
NEARLY = 1.08


def split_steps(steps: int, ranks: int, chunk: int) -> tuple[int, ...]:
    """Where the steps of each rank begin, and T: equal numbers of chunks, on as many ranks as there are
    chunks."""
    chunks = -(-steps // chunk)
    holders = min(ranks, chunks)
    return (*(-(-chunks * rank // holders) * chunk for rank in range(holders)), steps)


def predicted_seconds(
    model: Processor, link: Link, size: WalkSize, held: Sequence[int], chunk: int
) -> tuple[float, float]:
    """What the way back takes from rank to rank, and by chunks on all of them.

    size  of the whole walk
    held  the steps of each rank, in the order in which the walk meets them

    By chunks the ranks reduce their own ones side by side, but for the walk's first, whose map nobody needs;
    all gather the maps and scan over them, and each expands its own chunks.
    """
    ranks, state = len(held), size.walks * size.state
    relayed = (ranks - 1) * link.seconds(state * size.itemsize) if ranks > 1 else 0.0
    reduced = expanded = 0.0
    for (steps, first), times in Counter((steps, int(not rank)) for rank, steps in enumerate(held)).items():
        own = replace(size, steps=steps)
        chunks = own.chunks(chunk)
        relayed += times * model.walk_seconds(own, "backward", 1)
        if chunks > first:
            reduced = max(reduced, model.reduce_seconds(own, chunk, first))
        expanded = max(expanded, model.walk_seconds(own, "backward", chunks))
    boundaries = size.chunks(chunk) - 1
    scanned = reduced + model.scan_seconds(size, boundaries + 1) + expanded + 3 * model.launch + model.check
    if ranks > 1:
        map_bytes = state * (size.state * size.itemsize + 4)
        scanned += link.seconds(boundaries * map_bytes * (ranks - 1) / ranks)
    return relayed, scanned


def best_chunk(model: Processor, link: Link, size: WalkSize, ranks: int) -> int:
    """The chunk length by which the quicker way back over so many ranks is predicted nearly the quickest:
    of those within `NEARLY`, one that most ranks hold steps by, and of these the one with the quickest scan.

    There are two chunks at least, where there are steps enough: on one rank alone there is no split.
    """
    shared = [-(-size.steps // (ranks * many)) for many in (*range(1, 9), *(2**k for k in range(4, 11)))]
    longest = max(1, -(-size.steps // 2))
    lengths = sorted({min(chunk, longest) for chunk in (*shared, *size.chunk_lengths())})
    fitting = [chunk for chunk in lengths if model.lack(size, "backward", chunk) is None] or lengths
    found = []
    for chunk in fitting:
        starts = split_steps(size.steps, ranks, chunk)
        ways = predicted_seconds(model, link, size, list(map(sub, starts[1:], starts)), chunk)
        found.append((chunk, len(starts) - 1, ways))
    least = min(min(ways) for _, _, ways in found)
    near = [(-holders, ways[1], chunk) for chunk, holders, ways in found if min(ways) <= NEARLY * least]
    return min(near)[-1]

"""What a way back over time takes on several ranks, and the chunk length by which it takes the least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from operator import sub
from typing import NamedTuple

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


class Predicted(NamedTuple):
    """What a way back over time takes: from rank to rank, by chunks on all ranks, and by which window."""

    relayed: float
    scanned: float
    window: int

    @property
    def least(self) -> float:
        """That of the quicker way."""
        return min(self.relayed, self.scanned)


def windows(ranks: int) -> list[int]:
    """Which windows there are: 1, 2, 4, ... up to the first that holds all ranks."""
    return [2**k for k in range((ranks - 1).bit_length() + 1)]


def exchange_seconds(
    link: Link, launch: float, ranks: int, maps: int, map_bytes: int, gradient_bytes: int, window: int
) -> float:
    """What ranks in a row wait for each other between reduction and expansion, beside the scan itself.

    maps    of a rank, at most
    window  over how many ranks each one scans: it has the maps of those that follow in the walk, which come
            in log2(window) rounds, and the gradient behind them, which is handed on from window to window

    Whether all boundaries are finite is agreed on by a collective call, in rounds that tell its name and
    rounds that tell the flags.
    """
    rounds = sum(link.seconds(maps * min(reach, ranks - reach) * map_bytes) for reach in windows(window)[:-1])
    handed = -(-ranks // window) - 1
    agreed = 2 * (ranks - 1).bit_length() * link.latency
    return rounds + handed * (link.seconds(gradient_bytes) + launch) + agreed


def best_exchange(
    link: Link,
    launch: float,
    ranks: int,
    maps: int,
    map_bytes: int,
    gradient_bytes: int,
    most: int | None = None,
) -> tuple[float, int]:
    """The least `exchange_seconds` by a window of at most `most` ranks, and the window."""
    return min(
        (exchange_seconds(link, launch, ranks, maps, map_bytes, gradient_bytes, window), window)
        for window in windows(ranks)
        if most is None or window <= most
    )


def predicted_seconds(
    model: Processor,
    link: Link,
    size: WalkSize,
    held: Sequence[int],
    chunk: int,
    most: int | None = None,
) -> Predicted:
    """What the way back takes from rank to rank, and by chunks on all of them.

    size  of the whole walk
    held  the steps of each rank, in the order in which the walk meets them
    most  ranks of a window, at most; as many as there are where None

    By chunks the ranks reduce their own ones side by side, but for the walk's first, whose map nobody needs;
    each scans over its window, and expands its own chunks.
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
    scanned = reduced + model.scan_seconds(size, size.chunks(chunk)) + expanded
    map_bytes = state * ((size.state + 1) * size.itemsize + 4)
    maps = -(-max(held) // chunk)
    exchanged, window = best_exchange(link, model.launch, ranks, maps, map_bytes, state * size.itemsize, most)
    return Predicted(relayed, scanned + exchanged + 3 * model.launch + model.check, window)


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
    least = min(ways.least for _, _, ways in found)
    near = [(-holders, ways.scanned, chunk) for chunk, holders, ways in found if ways.least <= NEARLY * least]
    return min(near)[-1]

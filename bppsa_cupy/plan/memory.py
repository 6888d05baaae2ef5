"""Where the scan's values lie: one arena, shared by liveness, laid out before a byte is allocated."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bppsa_cupy.plan.partition import RankSchedule
from bppsa_cupy.plan.schedule import BEGIN, KIND, LEVEL, SPLIT, WORKER, Schedule, Segment
from bppsa_cupy.plan.sizes import ChainSizes

#: Offsets are multiples of this many values, so that every segment starts on its own 256 bytes in float32.
ALIGNMENT = 64

#: Segments (k, 2) that take space, and the first (k,) and last time (k,) at which each is needed.
Live = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets into one arena of values.

    total_bytes   size of the arena
    offsets       segment -> (offset, number of values), both in values
    tops          size the arena has reached after the inputs are in and after each level, (depth + 1,)

    Law: two segments that are live at one level do not overlap. An input a_k is live from before
    level 0, a computed segment from the level of its step; a matrix until the last level that reads it,
    a vector v(k) to the end.
    """

    total_bytes: int
    offsets: dict[Segment, tuple[int, int]]
    tops: tuple[int, ...]


def memory_plan(sizes: ChainSizes, schedule: Schedule, batch_size: int, itemsize: int) -> MemoryPlan:
    """Lay the segments of `schedule` into an arena, first fit, the largest of a level first.

    sizes       of a chain that is planned, or merely counted
    batch_size  samples the arena is for
    itemsize    bytes of a value
    """
    return _memory_plan(sizes, _live(schedule), schedule.depth, batch_size, itemsize)


def rank_memory_plan(
    sizes: ChainSizes, placement: RankSchedule, rank: int, batch_size: int, itemsize: int
) -> MemoryPlan:
    """Lay out what one rank of `placement` holds: the inputs it reads, what it computes and receives.

    A rank runs its steps one after another, so a segment is live by steps here, not by levels; `tops` is by
    steps too, (steps of the rank + 1,). What it sends and what it receives is live from the beginning or
    until the end: a message may be under way.
    """
    return rank_memory_plans(sizes, placement, batch_size, itemsize, (rank,))[0]


def rank_memory_plans(
    sizes: ChainSizes,
    placement: RankSchedule,
    batch_size: int,
    itemsize: int,
    ranks: Sequence[int] | None = None,
) -> list[MemoryPlan]:
    """The `rank_memory_plan` of each of `ranks`, by default of all."""
    of, *live = _live_on_ranks(placement)
    starts = np.searchsorted(of, np.arange(placement.ranks + 1))
    steps = np.bincount(placement.schedule.table[:, WORKER], minlength=placement.ranks)
    plans = []
    for rank in range(placement.ranks) if ranks is None else ranks:
        own = slice(starts[rank], starts[rank + 1])
        segments, first, last = (array[own] for array in live)
        plans.append(_memory_plan(sizes, (segments, first, last), int(steps[rank]), batch_size, itemsize))
    return plans


def rank_peaks(
    sizes: ChainSizes, placement: RankSchedule, batch_size: int, itemsize: int, *, matrices: bool = False
) -> np.ndarray:
    """(ranks,) the bytes of the segments each rank holds at once, at the most.

    matrices  count matrices alone, the Jacobians and their products

    No layout falls below it; that of `rank_memory_plan` has holes too. Quick for long schedules.
    """
    of, segments, first, last = _live_on_ranks(placement)
    if matrices:
        kept = segments[:, 0] > 0
        of, segments, first, last = of[kept], segments[kept], first[kept], last[kept]
    # A row of moments a rank: before its first step, each step, after its last one, and nothing held.
    steps = np.bincount(placement.schedule.table[:, WORKER], minlength=placement.ranks)
    starts = np.concatenate([[0], np.cumsum(steps + 3)])
    changes = np.zeros(starts[-1], np.int64)
    amounts = sizes.values_sizes(segments, batch_size) * itemsize
    np.add.at(changes, starts[of] + first + 1, amounts)
    np.subtract.at(changes, starts[of] + last + 2, amounts)
    return np.asarray(np.maximum.reduceat(np.cumsum(changes), starts[:-1]))


def _memory_plan(sizes: ChainSizes, live: Live, depth: int, batch_size: int, itemsize: int) -> MemoryPlan:
    segments, values, offsets, tops = _lay_out(sizes, live, depth, batch_size)
    ranges = zip(offsets, values, strict=True)
    by_segment = dict(zip(map(tuple, segments.tolist()), ranges, strict=True))
    return MemoryPlan(tops[-1] * itemsize, by_segment, tuple(tops))


def _live(schedule: Schedule) -> Live:
    """Segments (k, 2) that take space, and the first (k,) and last level (k,) at which each is needed.

    Inputs begin at -1; those whose values no step reads, as those of a_n where no input gradient is asked
    for, and of what is crossed by VJPs, are left out, but for a_0.
    """
    end, n = schedule.depth, schedule.n
    table, makers = schedule.table, schedule.makers
    level, begin = table[:, LEVEL], table[:, [BEGIN, SPLIT]]
    reading = np.broadcast_to(level[:, None], makers.shape)
    is_input = makers < 0
    element_last, step_last = np.full(n + 1, -1), level.copy()
    np.maximum.at(element_last, begin[is_input], reading[is_input])
    np.maximum.at(step_last, makers[~is_input], reading[~is_input])
    step_last[table[:, BEGIN] == 0] = end
    element_last[0] = end
    element_last[list(schedule.vjps)] = -1
    elements = np.flatnonzero(element_last >= 0)
    return (
        np.vstack([np.stack([elements, elements + 1], 1), schedule.out]),
        np.concatenate([np.full(elements.size, -1), level]),
        np.concatenate([element_last[elements], step_last]),
    )


def _live_on_ranks(placement: RankSchedule) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Likewise of every rank's segments, by the positions of its own steps instead of levels.

    Returns (k,) ranks, sorted, and the segments, first and last positions.
    """
    schedule, sent = placement.schedule, placement.sent
    n, worker = schedule.n, schedule.table[:, WORKER]
    steps = np.bincount(worker, minlength=placement.ranks)
    order = np.argsort(worker, kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(order.size) - (np.cumsum(steps) - steps)[worker[order]]
    before, kept = np.full_like(worker, -1), np.full(len(sent), -1)
    # Every use of a segment: on which rank, from when and until when.
    uses = [
        (worker, schedule.left, before, position),
        (worker, schedule.right, before, position),
        (worker, schedule.out, position, position),
        (sent[:, 3], sent[:, 1:3], kept, steps[sent[:, 3]]),
        (sent[:, 4], sent[:, 1:3], kept, steps[sent[:, 4]]),
        (placement.owners[:1], np.array([[0, 1]]), np.array([-1]), steps[placement.owners[:1]]),
    ]
    of, segments, first, last = (np.concatenate(column) for column in zip(*uses, strict=True))
    vectors = segments[:, 0] == 0
    last = np.where(vectors, steps[of], last)
    keys = (of * (n + 2) + segments[:, 0]) * (n + 2) + segments[:, 1]
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    firsts, lasts = (np.maximum.reduceat(array[order], starts) for array in (first, last))
    chosen = order[starts]
    return of[chosen], segments[chosen], firsts, lasts


def _lay_out(
    sizes: ChainSizes, live: Live, depth: int, batch_size: int
) -> tuple[np.ndarray, list[int], list[int], list[int]]:
    """Segments in the order in which they are placed, the values and the offset of each, and `tops`."""
    segments, first, last = live
    values = sizes.values_sizes(segments, batch_size)
    order = np.lexsort((segments[:, 1], segments[:, 0], -values, first))
    segments, first, last, values = segments[order], first[order], last[order], values[order]
    starts = np.flatnonzero((np.diff(first, prepend=-2) != 0) | (np.diff(values, prepend=-1) != 0))
    runs: Iterator[tuple[int | None, int]] = zip(
        first[starts].tolist(), np.diff(starts, append=first.size).tolist(), strict=True
    )
    ending = np.argsort(last, kind="stable")
    ends = np.searchsorted(last[ending], np.arange(-1, depth), side="right").tolist()
    amounts, freed = values.tolist(), ending.tolist()
    arena, given = _Arena(), 0
    offsets: list[int] = []
    tops: list[int] = []
    level, count = next(runs, (None, 0))
    for now, until in enumerate(ends, -1):
        while level == now:
            offsets += arena.take(amounts[len(offsets)], count)
            level, count = next(runs, (None, 0))
        tops.append(arena.top)
        for position in freed[given:until]:
            arena.give(offsets[position], amounts[position])
        given = until
    return segments, amounts, offsets, tops


def level_tops(sizes: ChainSizes, schedule: Schedule, batch_size: int) -> list[int]:
    """The `tops` of a `memory_plan`, without its offsets."""
    return _lay_out(sizes, _live(schedule), schedule.depth, batch_size)[-1]


def vector_sizes(sizes: ChainSizes, schedule: Schedule, batch_size: int) -> dict[Segment, int]:
    """Values of the injected vector of every element and every product of an affine scan."""
    products = schedule.out[schedule.table[:, KIND] > 0].tolist()
    segments = [(k, k + 1) for k in range(1, schedule.n + 1)] + [(begin, end) for begin, end in products]
    return {segment: sizes.chain.length(segment[1]) * batch_size for segment in segments}


class _Arena:
    """First-fit allocation of aligned ranges; `top` is the size needed so far."""

    def __init__(self) -> None:
        self.top = 0
        # Of the holes, sorted, never adjacent.
        self._starts: list[int] = []
        self._ends: list[int] = []

    def take(self, size: int, count: int) -> list[int]:
        """The offsets of `count` ranges of one size, each the first that is free when its turn comes."""
        size = _aligned(size)
        if size == 0:
            return [0] * count
        taken: list[int] = []
        left: list[tuple[int, int]] = []
        passed = 0
        for start, end in zip(self._starts, self._ends, strict=True):
            if len(taken) == count:
                break
            fitting = min((end - start) // size, count - len(taken))
            taken += range(start, start + fitting * size, size)
            if start + fitting * size < end:
                left.append((start + fitting * size, end))
            passed += 1
        self._starts[:passed] = [start for start, _ in left]
        self._ends[:passed] = [end for _, end in left]
        missing = count - len(taken)
        if missing:
            start = self.top
            if self._ends and self._ends[-1] == self.top:
                start = self._starts.pop()
                self._ends.pop()
            self.top = start + missing * size
            taken += range(start, self.top, size)
        return taken

    def give(self, start: int, size: int) -> None:
        """Return a range that was taken."""
        end = start + _aligned(size)
        if start == end:
            return
        at = bisect_left(self._starts, start)
        first = at - 1 if at > 0 and self._ends[at - 1] == start else at
        last = at + 1 if at < len(self._starts) and self._starts[at] == end else at
        joined = min([start, *self._starts[first:last]]), max([end, *self._ends[first:last]])
        self._starts[first:last], self._ends[first:last] = [joined[0]], [joined[1]]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT

"""Memory of a scan, worked out before a byte is allocated: offsets of values in an arena, and a budget."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from bppsa_cupy.plan.partition import RankSchedule, place
from bppsa_cupy.plan.schedule import BEGIN, END, LEVEL, SPLIT, Schedule, Segment, with_input_gradient
from bppsa_cupy.plan.sizes import ChainSizes

#: Offsets are multiples of this many values, so that every segment starts on its own 256 bytes in float32.
ALIGNMENT = 64

#: Segments (k, 2) that take space, and the first (k,) and last level (k,) at which each is needed.
Live = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets into one arena of `total_bytes`: `offsets` maps a segment to its offset and size, in values.

    Law: two segments that are live at one level do not overlap. An input a_k is live from before
    level 0, a computed segment from the level of its step; a matrix until the last level that reads it,
    a vector v(k) to the end.
    """

    total_bytes: int
    offsets: dict[Segment, tuple[int, int]]


def _live(schedule: Schedule) -> Live:
    """When each segment is needed. Inputs begin at level -1.

    Inputs whose values no step reads are left out, but for a_0: a_n where no input gradient is asked for, and
    elements that are crossed by VJPs.
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


def memory_plan(sizes: ChainSizes, schedule: Schedule, batch_size: int, itemsize: int) -> MemoryPlan:
    """The layout of the values of a scan for `batch_size` samples."""
    return _place_segments(sizes, _live(schedule), batch_size, itemsize)


def rank_memory_plan(
    sizes: ChainSizes, placement: RankSchedule, rank: int, batch_size: int, itemsize: int
) -> MemoryPlan:
    """The layout of the values of one rank: the inputs it reads, and what it computes, sends and receives.

    A message may be under way at any time, so a segment that is received is live from the start and, like one
    that is sent, to the end.
    """
    schedule, sent = placement.schedule, placement.sent
    segments, first, last = _live(schedule)
    name = np.array([schedule.n + 2, 1])
    steps = schedule.table[placement.steps_of(rank)]
    used = steps[:, [[BEGIN, SPLIT], [SPLIT, END], [BEGIN, END]]].reshape(-1, 2) @ name
    sends, receives = (sent[sent[:, column] == rank, 1:3] @ name for column in (3, 4))
    start = name[1:] * (placement.owners[0] == rank)  # of a_0, the segment (0, 1)
    codes = segments @ name
    received = np.isin(codes, receives)
    first = np.where(received, -1, first)
    last = np.where(received | np.isin(codes, sends), schedule.depth, last)
    held = np.isin(codes, np.concatenate([used, sends, receives, start]))
    return _place_segments(sizes, (segments[held], first[held], last[held]), batch_size, itemsize)


def _place_segments(sizes: ChainSizes, live: Live, batch_size: int, itemsize: int) -> MemoryPlan:
    """Best fit without joining holes: most segments of a scan have few different sizes."""
    segments, first, last = live
    values = sizes.values_sizes(segments, batch_size)
    order = np.lexsort((segments[:, 1], segments[:, 0], -values, first))
    columns = (array[order].tolist() for array in (segments, first, last, values))
    offsets: dict[Segment, tuple[int, int]] = {}
    holes: list[tuple[int, int]] = []  # (size, offset), sorted
    ending: list[tuple[int, int, int]] = []  # (last level, size, offset), a heap
    top = 0
    for (begin, end), start, until, count in zip(*columns, strict=True):
        while ending and ending[0][0] < start:
            insort(holes, heappop(ending)[1:])
        size = -(-count // ALIGNMENT) * ALIGNMENT
        at = bisect_left(holes, (size, 0))
        if at < len(holes) and size:
            space, offset = holes.pop(at)
            if space > size:
                insort(holes, (space - size, offset + size))
        else:
            offset, top = top if size else 0, top + size
        offsets[begin, end] = offset, count
        if size:
            heappush(ending, (until, size, offset))
    return MemoryPlan(top * itemsize, offsets)


@dataclass(frozen=True)
class Budget:
    """The resources of scans.

    Attributes
    ----------
    batch_size, itemsize : int
        The samples that the buffers hold, and the bytes per value.
    workers : int
        The number of workers, or of ranks.
    memory : int or None
        Bytes for the values of one schedule. None for no limit.
    owners : tuple of int or None
        The rank of each element a_1, …, a_n. Each step runs on the rank of its last element, and memory is
        that of the rank that needs most. None if workers share all steps.
    """

    batch_size: int
    itemsize: int
    workers: int = 1
    memory: int | None = None
    owners: tuple[int, ...] | None = None

    def bytes(self, sizes: ChainSizes, schedule: Schedule) -> int:
        """Bytes of the values of `schedule`, with the gradient with respect to the chain's input."""
        schedule, size = with_input_gradient(schedule), (self.batch_size, self.itemsize)
        if self.owners is None:
            return memory_plan(sizes, schedule, *size).total_bytes
        placement = place(schedule, self.owners, self.workers)
        return max(
            rank_memory_plan(sizes, placement, rank, *size).total_bytes for rank in range(self.workers)
        )

    def fits(self, needed: int) -> bool:
        """Whether there is as much memory."""
        return self.memory is None or needed <= self.memory

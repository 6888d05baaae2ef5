"""Where the scan's values lie: one arena, shared by liveness, laid out before a byte is allocated."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from dataclasses import dataclass

from bppsa_cupy.plan.schedule import Schedule, Segment
from bppsa_cupy.plan.sizes import ChainSizes

#: Offsets are multiples of this many values, so that every segment starts on its own 256 bytes in float32.
ALIGNMENT = 64


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets into one arena of values.

    total_values  size of the arena
    total_bytes   the same in bytes
    offsets       segment -> (offset, number of values), both in values
    tops          size the arena has reached after the inputs are in and after each level, (depth + 1,)

    Law: two segments that are live at one level do not overlap. An input a_k is live from before
    level 0, a computed segment from the level of its step; a matrix until the last level that reads it,
    a vector v(k) to the end.
    """

    total_values: int
    total_bytes: int
    offsets: dict[Segment, tuple[int, int]]
    tops: tuple[int, ...]


def live_ranges(schedule: Schedule) -> dict[Segment, tuple[int, int]]:
    """Segment -> (first, last) level at which its values are needed, both inclusive; inputs begin at -1.

    Inputs that no step reads, as a_n where no input gradient is asked for, are not listed; a_0 always is.
    """
    end = schedule.depth
    first: dict[Segment, int] = {(0, 1): -1}
    last: dict[Segment, int] = {(0, 1): end}
    for step in schedule.steps:
        for operand in (step.left, step.right):
            first.setdefault(operand, -1)
            if operand[0] != 0:
                last[operand] = step.level
        first[step.out] = step.level
        if step.begin == 0:
            last[step.out] = end
    return {segment: (start, last[segment]) for segment, start in first.items()}


def memory_plan(sizes: ChainSizes, schedule: Schedule, batch_size: int, itemsize: int) -> MemoryPlan:
    """Lay the segments of `schedule` into an arena, first fit, the largest of a level first.

    sizes       of a chain that is planned, or merely counted
    batch_size  samples the arena is for
    itemsize    bytes of a value
    """
    starting: dict[int, list[tuple[int, Segment]]] = defaultdict(list)
    ending: dict[int, list[Segment]] = defaultdict(list)
    for segment, (first, last) in live_ranges(schedule).items():
        starting[first].append((-sizes.values_size(segment, batch_size), segment))
        ending[last].append(segment)
    arena = _Arena()
    offsets: dict[Segment, tuple[int, int]] = {}
    tops = []
    for level in range(-1, schedule.depth):
        for negative, segment in sorted(starting[level]):
            offsets[segment] = arena.take(-negative), -negative
        tops.append(arena.top)
        for segment in ending[level]:
            arena.give(*offsets[segment])
    return MemoryPlan(arena.top, arena.top * itemsize, offsets, tuple(tops))


def needed_bytes(
    sizes: ChainSizes,
    schedule: Schedule,
    batch_size: int,
    itemsize: int,
    *,
    indices: bool = True,
    affine: bool = False,
) -> list[int]:
    """Bytes a scan has taken when its inputs are in and after each level, (depth + 1,).

    They are the values of `memory_plan`, and with `indices` all patterns and maps the levels so far have
    read, with `affine` the injected vectors.
    """
    tops = memory_plan(sizes, schedule, batch_size, itemsize).tops
    fixed = sum(vector_sizes(sizes, schedule, batch_size).values()) * itemsize if affine else 0
    held = [0, *sizes.index_bytes(schedule)] if indices else [0] * len(tops)
    return [top * itemsize + fixed + integers for top, integers in zip(tops, held, strict=True)]


def vector_sizes(sizes: ChainSizes, schedule: Schedule, batch_size: int) -> dict[Segment, int]:
    """Values of the injected vector of every element and every product of an affine scan."""
    products = [step.out for step in schedule.steps if step.kind == "mm"]
    segments = [(k, k + 1) for k in range(1, schedule.n + 1)] + products
    return {segment: sizes.chain.length(segment[1]) * batch_size for segment in segments}


class _Arena:
    """First-fit allocation of aligned ranges; `top` is the size needed so far."""

    def __init__(self) -> None:
        self.top = 0
        self._holes: list[tuple[int, int]] = []  # (start, end), sorted, never adjacent

    def take(self, size: int) -> int:
        """The offset of a free range."""
        size = _aligned(size)
        if size == 0:
            return 0
        for position, (start, end) in enumerate(self._holes):
            if end - start >= size:
                self._holes[position : position + 1] = [(start + size, end)] if end - start > size else []
                return start
        start = self.top
        if self._holes and self._holes[-1][1] == self.top:
            start = self._holes.pop()[0]
        self.top = start + size
        return start

    def give(self, start: int, size: int) -> None:
        """Return a range that was taken."""
        end = start + _aligned(size)
        if start == end:
            return
        insort(self._holes, (start, end))
        at = self._holes.index((start, end))
        if at + 1 < len(self._holes) and self._holes[at + 1][0] == end:
            self._holes[at : at + 2] = [(start, self._holes[at + 1][1])]
        if at > 0 and self._holes[at - 1][1] == start:
            self._holes[at - 1 : at + 1] = [(self._holes[at - 1][0], self._holes[at][1])]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT

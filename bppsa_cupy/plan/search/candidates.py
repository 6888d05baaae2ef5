"""The class of schedules that the search takes the best of: `search.search` describes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bppsa_cupy.plan.algorithms import every_hybrid, from_splits, hybrid
from bppsa_cupy.plan.cost import timetable
from bppsa_cupy.plan.schedule import SPLIT, Schedule
from bppsa_cupy.plan.search import loops
from bppsa_cupy.plan.search.segment_costs import SegmentCosts

#: Sizes of blocks.
SIZES = 12
#: Elements where blocks may begin, an equal number of elements apart.
PREFIXES = 8
#: Deadlines from the shortest path to the serial scan's length.
DEADLINES = 10


@dataclass(frozen=True, eq=False)
class Candidate:
    """A member of the class.

    levels    of the up-sweep, where it is a hybrid(n, levels)
    splits    segment -> split, as arrays (steps, 3) of begin, split, end; operands before readers
    operands  (steps, 2) positions of the operands among the steps, -1 for inputs
    seconds   (steps,)
    early     whether matrices too are made as early as their operands allow: `from_splits`
    """

    n: int
    levels: int | None
    splits: np.ndarray
    operands: np.ndarray
    seconds: np.ndarray
    early: bool = False

    @cached_property
    def work(self) -> float:
        """Seconds of all steps."""
        return float(self.seconds.sum())

    @cached_property
    def critical_path(self) -> float:
        """Seconds with as many workers as steps."""
        return self.makespan(max(len(self.seconds), 1))

    def makespan(self, workers: int) -> float:
        """Seconds on so many workers, by the list scheduler."""
        return timetable(self.operands, self.splits[:, [0, 2]], self.seconds, workers).seconds

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule, called "hybrid"."""
        if self.levels is not None:
            return hybrid(self.n, self.levels)
        splits = {(begin, end): split for begin, split, end in self.splits.tolist()}
        return from_splits("hybrid", self.n, splits, early=self.early)


class Reach:
    """f, g and the lightest trees over the segments of `classes`."""

    def __init__(self, costs: SegmentCosts, classes: np.ndarray) -> None:
        self.costs, self.classes = costs, classes
        self.ready, self.work, self.product = (np.empty(classes.shape) for _ in range(3))
        self.splits = np.zeros(classes.shape, np.int32)
        if costs.n < 2:
            self.ready[:] = 0.0
            return
        loops.shortest_matrices(classes, costs.mm, self.ready, self.work, self.product, self.splits)
        loops.shortest_vectors(classes, costs.mv, self.ready, self.work, self.splits)

    @property
    def length(self) -> float:
        """Of the shortest critical path."""
        return float(self.ready[0, 2:].max(initial=0.0))

    @cached_property
    def least_work(self) -> float:
        """Seconds that every schedule works at least: the sum over v(2), …, v(n) of its cheapest mv and the
        cheapest last product of that mv's matrix."""
        if self.costs.n < 2:
            return 0.0
        known = np.where(self.classes < 0, np.inf, self.costs.mv[self.classes] + self.product)
        return float(known[1:, 2:].min(axis=0).sum())

    def within(self, deadline: float) -> np.ndarray:
        """The splits of little work whose vectors are all there by `deadline`: see `loops.relax`."""
        chosen, seconds = np.zeros_like(self.splits), (self.costs.mm, self.costs.mv)
        loops.relax(self.classes, *seconds, self.ready, self.work, self.splits, deadline, chosen)
        return chosen


def members(costs: SegmentCosts, ranks: bool = False) -> Iterator[Candidate]:
    """The class, the hybrids first; over `ranks`, where the order of steps counts, the others in both."""
    n = costs.n
    for schedule in every_hybrid(n):
        splits = np.zeros(costs.classes.shape, np.int32)
        splits[tuple(schedule.out.T)] = schedule.table[:, SPLIT]
        yield make_candidate(costs, splits, schedule.levels)
    if n < 2:
        return
    serial = float(costs.mv[np.diagonal(costs.classes, 1)[1:]].sum())
    for classes in segment_sets(costs):
        reach = Reach(costs, classes)
        ratio = max(serial / reach.length, 1.0) if reach.length else 1.0
        for turn in range(DEADLINES if ratio > 1 else 1):
            candidate = make_candidate(costs, reach.within(reach.length * ratio ** (turn / DEADLINES)))
            yield candidate
            if ranks:
                yield replace(candidate, early=True)


def segment_sets(costs: SegmentCosts) -> Iterator[np.ndarray]:
    """The classes of every set of segments, all segments first."""
    n = costs.n
    yield costs.classes
    begin, end = np.indices(costs.classes.shape)
    for size in np.unique(np.geomspace(2, n, SIZES).astype(int))[:-1]:
        for first in sorted({n * k // PREFIXES for k in range(PREFIXES)}):
            inside = (begin >= first) & ((begin - first) // size == (end - 1 - first) // size)
            yield np.where(inside | (end == begin + 1), costs.classes, -1)


def make_candidate(costs: SegmentCosts, splits: np.ndarray, levels: int | None = None) -> Candidate:
    """The candidate that makes its segments by `splits` (n + 1, n + 1), 0 where a segment is not needed."""
    segments = np.argwhere(splits)
    begin, end = segments.T
    # Operands are shorter matrices, or vectors that end earlier.
    order = np.lexsort((begin, end, np.where(begin, end - begin, 0), begin == 0))
    segments = segments[order]
    begin, end = segments.T
    split = splits[begin, end].astype(np.int64)
    position = np.full(splits.shape, -1, np.int64)
    position[begin, end] = np.arange(len(segments))
    operands = np.stack([position[begin, split], position[split, end]], axis=1)
    steps = np.stack([begin, split, end], axis=1)
    return Candidate(costs.n, levels, steps, operands, costs.seconds(splits, segments))

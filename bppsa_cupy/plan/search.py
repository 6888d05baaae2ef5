"""The search for schedules: exact for unbounded workers, the best of a class for p workers.

For unbounded workers the shortest critical path follows from two recurrences over segments,

    f(i, j) = min over k of max(f(i, k), f(k, j)) + mm(i, k, j)      when M(i, j) can be there
    g(j)    = min over k of max(g(k), f(k, j)) + mv(k, j)            when v(j) can be there

with f(k, k + 1) = g(1) = 0: every segment reaches its least time at once, since workers do not run out.

For p workers the search takes the best of a class of schedules, each costed by the one list scheduler
(`paths.place`). The class of a chain of n matrices holds

1. the serial scan, algorithm 1, and hybrid(n, L) for every number L of up-sweep levels, the paper's
   hand-picked schedule (`paper_hybrid`) among them;
2. where n <= EVERY, all schedules: every choice of a split for every segment that is needed;
3. for every set S of segments below and every deadline D below, the schedule of `paths.relax`: its
   vectors are there by D, given enough workers, and each segment is split with the least added work that
   this allows. D runs in DEADLINES equal ratios from the least max g over S, which gives a shortest
   critical path, to the length of the serial scan; a last one has no deadline. The sets S are

   - all segments;
   - products of at most so many seconds, MOST_SETS limits from the cheapest to the dearest product;
   - the segments inside the blocks [x, x + m), [x + m, x + 2m), …: MOST_SETS sizes m from 2 to n, and
     PREFIXES starts x from 0 to n, before which the scan is serial;
   - with a memory limit: matrices of at most so many values, MOST_SETS limits.

With a memory limit, schedules over it are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import paths
from bppsa_cupy.plan.schedule import Schedule, Segment, from_splits, hybrid, up_sweep_levels
from bppsa_cupy.plan.segment_costs import SegmentCosts

#: Elements of the longest chain of which all schedules are tried (1284 of them).
EVERY = 6
#: Limits, or block sizes, of each family of segment sets.
MOST_SETS = 12
#: Places where blocks may begin, an equal number of elements apart.
PREFIXES = 8
#: Deadlines from the shortest path to the serial scan's length.
DEADLINES = 10
#: A deadline that nothing misses.
NEVER = 1e300


@dataclass(frozen=True, eq=False)
class Candidate:
    """A member of the class.

    name      what it is called, e.g. "products of at most 3.2e-05 s, within 1.5 of the shortest path"
    levels    of the up-sweep, where it is a hybrid(n, levels)
    splits    segment -> split, as arrays (steps, 3) of begin, split, end; operands before readers
    operands  (steps, 2) positions of the operands among the steps, -1 for inputs
    seconds   (steps,)
    """

    name: str
    n: int
    levels: int | None
    splits: np.ndarray
    operands: np.ndarray
    seconds: np.ndarray

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
        starts, placed = np.empty(len(self.seconds)), np.empty(len(self.seconds), np.int64)
        rank = self.splits[:, 2] * (self.n + 2) + self.splits[:, 0]
        return float(paths.place(self.operands, rank, self.seconds, workers, starts, placed)[0])

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule, called "hybrid"."""
        if self.levels is not None:
            return hybrid(self.n, self.levels)
        splits = {(begin, end): split for begin, split, end in self.splits.tolist()}
        return from_splits("hybrid", self.n, splits)


@dataclass(frozen=True)
class Found:
    """The best candidate for a number of workers.

    workers      None: as many as there are steps
    seconds      until its last step ends
    lower_bound  max(work / workers, depth), which no schedule over the segments searched falls below:
                 work is the sum over v(2), …, v(n) of its cheapest mv and the cheapest last product of that
                 mv's matrix, depth the shortest critical path
    considered   number of different candidates
    """

    candidate: Candidate
    workers: int | None
    seconds: float
    lower_bound: float
    considered: int

    @property
    def schedule(self) -> Schedule:
        """The schedule, called "hybrid"."""
        return self.candidate.schedule


class Search:
    """The class of schedules over a chain, made once and asked for any number of workers.

    costs   of every product
    fits    whether a schedule is within the memory limit; None where there is none
    """

    def __init__(self, costs: SegmentCosts, fits: Callable[[Schedule], bool] | None = None) -> None:
        self.costs, self._fits = costs, fits
        self._fitting: dict[int, bool] = {}

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """The members of the class, equal ones once: the hybrids first, by their levels."""
        different: dict[bytes, Candidate] = {}
        for candidate in _members(self.costs, self._fits is not None):
            different.setdefault(candidate.splits.tobytes(), candidate)
        return tuple(different.values())

    @cached_property
    def shortest(self) -> float:
        """Seconds of the shortest critical path."""
        return _Reach(self.costs, self.costs.classes, np.inf).length

    @cached_property
    def least_work(self) -> float:
        """Seconds that every schedule works at least: see `Found.lower_bound`."""
        return _Reach(self.costs, self.costs.classes, np.inf).least_work

    def lower_bound(self, workers: int | None) -> float:
        """Seconds that no schedule over the segments searched falls below."""
        return max(self.least_work / workers if workers else 0.0, self.shortest)

    def best(self, workers: int | None = None) -> Found:
        """The candidate with the least time on `workers`; ties go to less work, then to fewer levels.

        Where none fits the memory limit, the serial scan. Raises PlanError below one worker.
        """
        if workers is not None and workers < 1:
            raise PlanError(f"{workers} workers were asked for: a schedule takes at least 1")
        chosen, least = self.candidates[0], (np.inf, np.inf)
        for position, candidate in enumerate(self.candidates):
            bound = max(candidate.work / workers if workers else 0.0, candidate.critical_path)
            if bound * (1 - paths.ROUNDING) > least[0]:
                continue
            seconds = candidate.critical_path if workers is None else candidate.makespan(workers)
            if (seconds, candidate.work) < least and self._fit(position, candidate):
                chosen, least = candidate, (seconds, candidate.work)
        if least[0] == np.inf:
            least = chosen.critical_path if workers is None else chosen.makespan(workers), chosen.work
        return Found(chosen, workers, least[0], self.lower_bound(workers), len(self.candidates))

    def _fit(self, position: int, candidate: Candidate) -> bool:
        if self._fits is None:
            return True
        if position not in self._fitting:
            self._fitting[position] = self._fits(candidate.schedule)
        return self._fitting[position]


class _Reach:
    """f, g and the lightest trees over the segments of `classes`, by products of at most `most` seconds."""

    def __init__(self, costs: SegmentCosts, classes: np.ndarray, most: float) -> None:
        self.costs, self.classes, self.most = costs, classes, most
        self.ready, self.work, self.product = (np.empty(classes.shape) for _ in range(3))
        self.splits = np.zeros(classes.shape, np.int32)
        if costs.n < 2:
            self.ready[:] = 0.0
            return
        paths.shortest_matrices(classes, costs.mm, most, self.ready, self.work, self.product, self.splits)
        paths.shortest_vectors(classes, costs.mv, self.ready, self.work, self.splits)

    @property
    def length(self) -> float:
        """Of the shortest critical path."""
        return float(self.ready[0, 2:].max(initial=0.0))

    @property
    def least_work(self) -> float:
        """The sum over the vectors of the cheapest mv and its matrix's cheapest last product."""
        if self.costs.n < 2:
            return 0.0
        known = np.where(self.classes < 0, np.inf, self.costs.mv[self.classes] + self.product)
        return float(known[1:, 2:].min(axis=0).sum())

    def within(self, deadline: float) -> np.ndarray:
        """The splits of little work whose vectors are all there by `deadline`: see `paths.relax`."""
        chosen = np.zeros_like(self.splits)
        paths.relax(
            self.classes,
            self.costs.mm,
            self.costs.mv,
            self.most,
            self.ready,
            self.work,
            self.splits,
            deadline,
            chosen,
        )
        return chosen


def _members(costs: SegmentCosts, limited: bool) -> Iterator[Candidate]:
    n = costs.n
    for levels in range(up_sweep_levels(n) + 1):
        splits = np.zeros(costs.classes.shape, np.int32)
        for step in hybrid(n, levels).steps:
            splits[step.begin, step.end] = step.split
        name = f"hybrid of {levels} levels" if levels else "linear"
        yield _candidate(costs, name, splits, levels)
    if n < 2:
        return
    if n <= EVERY:
        for splits in every_choice(n):
            yield _candidate(costs, "one of all schedules", splits)
    serial = float(costs.mv[np.diagonal(costs.classes, 1)[1:]].sum())
    for name, classes, most in _sets(costs, limited):
        reach = _Reach(costs, classes, most)
        ratio = max(serial / reach.length, 1.0) if reach.length else 1.0
        for step in range(DEADLINES if ratio > 1 else 1):
            factor = ratio ** (step / DEADLINES)
            label = f"{name}, within {factor:.3g} of the shortest path"
            yield _candidate(costs, label, reach.within(reach.length * factor))
        yield _candidate(costs, f"{name}, least work", reach.within(NEVER))


def every_choice(n: int) -> Iterator[np.ndarray]:
    """The splits (n + 1, n + 1) of every schedule over n matrices, 0 where a segment is not needed."""
    splits = np.zeros((n + 1, n + 1), np.int32)
    vectors = [(0, j) for j in range(n, 1, -1)]
    order = vectors + [(i, i + size) for size in range(n - 1, 1, -1) for i in range(1, n + 1 - size)]

    def choose(place: int, needed: frozenset[Segment]) -> Iterator[np.ndarray]:
        if place == len(order):
            yield splits.copy()
            return
        begin, end = order[place]
        if begin and (begin, end) not in needed:
            yield from choose(place + 1, needed)
            return
        for split in range(begin + 1, end):
            splits[begin, end] = split
            yield from choose(place + 1, needed | {(begin, split), (split, end)})
        splits[begin, end] = 0

    yield from choose(0, frozenset())


def _sets(costs: SegmentCosts, limited: bool) -> Iterator[tuple[str, np.ndarray, float]]:
    """Name, classes and dearest product of every set of segments."""
    n = costs.n
    yield "all segments", costs.classes, np.inf
    products = np.unique(costs.mm[np.isfinite(costs.mm)])
    for most in _spread(products)[:-1]:
        yield f"products of at most {most:.3g} s", costs.classes, float(most)
    begin, end = np.indices(costs.classes.shape)
    for size in np.unique(np.geomspace(2, n, MOST_SETS).astype(int))[:-1]:
        for first in sorted({n * part // PREFIXES for part in range(PREFIXES)}):
            inside = (begin >= first) & ((begin - first) // size == (end - 1 - first) // size)
            kept = np.where(inside | (end == begin + 1), costs.classes, -1)
            yield f"blocks of {size} from a_{first} on", kept, np.inf
    if limited:
        for most in _spread(np.unique(costs.values))[:-1]:
            small = (costs.classes >= 0) & (costs.values[costs.classes] <= most)
            kept = np.where(small | (end == begin + 1), costs.classes, -1)
            yield f"matrices of at most {most} values", kept, np.inf


def _spread(limits: np.ndarray) -> np.ndarray:
    """At most MOST_SETS of sorted limits, by equal steps of their positions, the last one among them."""
    if limits.size <= MOST_SETS:
        return limits
    return limits[np.linspace(0, limits.size - 1, MOST_SETS).astype(int)]


def _candidate(costs: SegmentCosts, name: str, splits: np.ndarray, levels: int | None = None) -> Candidate:
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
    return Candidate(name, costs.n, levels, steps, operands, costs.seconds(splits, segments))


def shortest_path(costs: SegmentCosts) -> Candidate:
    """A schedule with the shortest critical path for unbounded workers, of little work: exact."""
    reach = _Reach(costs, costs.classes, np.inf)
    return _candidate(costs, "the shortest path", reach.within(reach.length))

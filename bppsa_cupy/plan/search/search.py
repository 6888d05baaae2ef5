"""The search for schedules: exact for unbounded workers, the best of a class for p workers.

For unbounded workers the shortest critical path follows from two recurrences over segments,

    f(i, j) = min over k of max(f(i, k), f(k, j)) + mm(i, k, j)      when M(i, j) can be there
    g(j)    = min over k of max(g(k), f(k, j)) + mv(k, j)            when v(j) can be there

with f(k, k + 1) = g(1) = 0: every segment reaches its least time at once, since workers do not run out.

For p workers the search takes the best of a class of schedules, each costed by the one list scheduler
(`cost.timetable`). The class of a chain of n matrices holds

1. the serial scan, algorithm 1, and hybrid(n, L) for every number L of up-sweep levels, the paper's
   hand-picked schedule (`paper_hybrid`) among them;
2. for every set S of segments below and every deadline D below, the schedule of `loops.relax`: its
   vectors are there by D, given enough workers, and each segment is split with the least added work that
   this allows. D runs in DEADLINES equal ratios from the least max g over S, which gives a shortest
   critical path, towards the length of the serial scan. The sets S are

   - all segments;
   - the segments inside the blocks [x, x + m), [x + m, x + 2m), …: SIZES sizes m from 2 to n, and
     PREFIXES starts x from 0 to n, before which the scan is serial.

Over ranks, each of which runs its steps in the schedule's order, the class holds the schedules of 2 with
matrices as late as their readers allow, and with them as early as their operands do.

Schedules that take more than the budget's memory are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from bppsa_cupy.plan.algorithms import every_hybrid
from bppsa_cupy.plan.budget import Budget
from bppsa_cupy.plan.cost import schedule_cost
from bppsa_cupy.plan.schedule import Schedule
from bppsa_cupy.plan.search import loops
from bppsa_cupy.plan.search.candidates import Candidate, Reach, members
from bppsa_cupy.plan.search.segment_costs import SegmentCosts, is_searched
from bppsa_cupy.plan.sizes import ChainSizes


@dataclass(frozen=True)
class Best:
    """The best candidate for a number of workers.

    seconds  until its last step ends
    """

    candidate: Candidate
    seconds: float

    @property
    def schedule(self) -> Schedule:
        """The schedule, called "hybrid"."""
        return self.candidate.schedule


class Search:
    """The class of schedules over a chain, made once and asked for any number of workers.

    costs   of every product
    fits    whether there is memory for a schedule; None where there is for any
    placed  seconds of a schedule over ranks, messages included; None where workers share all steps
    """

    def __init__(
        self,
        costs: SegmentCosts,
        fits: Callable[[Schedule], bool] | None = None,
        placed: Callable[[Schedule], float] | None = None,
    ) -> None:
        self.costs, self._placed = costs, placed
        self._fits = cache(lambda candidate: fits is None or fits(candidate.schedule))
        self._made: dict[tuple[bytes, bool], Candidate] = {}
        self._rest = members(costs, ranks=placed is not None)

    @classmethod
    def of(cls, sizes: ChainSizes, budget: Budget) -> Search:
        """The class over a chain whose `searched_segments` have been counted."""
        fits = None if budget.memory is None else lambda one: budget.fits(budget.bytes(sizes, one))
        placed = None if budget.owners is None else lambda one: schedule_cost(sizes, one, budget).seconds
        return cls(SegmentCosts.of(sizes, budget), fits, placed)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The members of the class, equal ones once: the hybrids first, by their levels."""
        return tuple(self._each())

    def _each(self) -> Iterator[Candidate]:
        """The candidates, made when they are reached for the first time."""
        yield from tuple(self._made.values())
        for candidate in self._rest:
            if (key := (candidate.splits.tobytes(), candidate.early)) not in self._made:
                self._made[key] = candidate
                yield candidate

    @cached_property
    def reach(self) -> Reach:
        """Over all segments: the shortest critical path, and the work that no schedule falls below."""
        return Reach(self.costs, self.costs.classes)

    def lower_bound(self, workers: int) -> float:
        """Seconds on `workers` that no schedule over the segments searched falls below."""
        return max(self.reach.least_work / workers, self.reach.length)

    def best(self, workers: int | None = None) -> Best:
        """The candidate with the least time on `workers`, by default as many as there are steps.

        Ties go to less work, then to fewer levels.
        Where there is memory for none, the serial scan. Raises PlanError below one worker.
        """
        chosen, least = next(self._each()), (np.inf, np.inf)
        for candidate in self._each():
            if workers == 1 and least[0] <= self.lower_bound(1):
                break  # Time is work then, and none works less.
            bound = max(candidate.work / workers if workers else 0.0, candidate.critical_path)
            if bound * (1 - loops.ROUNDING) > least[0]:
                continue
            seconds = self._seconds(candidate, workers)
            if (seconds, candidate.work) < least and self._fits(candidate):
                chosen, least = candidate, (seconds, candidate.work)
        if least[0] == np.inf:
            return Best(chosen, self._seconds(chosen, workers))
        return Best(chosen, least[0])

    def _seconds(self, candidate: Candidate, workers: int | None) -> float:
        if self._placed is not None:
            return self._placed(candidate.schedule)
        return candidate.critical_path if workers is None else candidate.makespan(workers)


def compute_schedule(sizes: ChainSizes, budget: Budget) -> Schedule:
    """The schedule of the class of `Search` with the least predicted time, called "hybrid".

    Of a chain that is too long for a search, the best hybrid(n, levels).

    sizes  of a chain whose `searched_segments` have been counted

    The serial scan where nothing fits the budget.
    """
    if is_searched(sizes.chain):
        return Search.of(sizes, budget).best(budget.workers).schedule
    hybrids = every_hybrid(len(sizes.chain))
    seconds = [schedule_cost(sizes, schedule, budget).seconds for schedule in hybrids]
    quickest = sorted(hybrids, key=lambda schedule: seconds[schedule.levels or 0])
    return next((one for one in quickest if budget.fits(budget.bytes(sizes, one))), hybrids[0])

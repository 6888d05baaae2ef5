"""Computing a schedule: the best of the class that is searched, or of the hybrids."""

from __future__ import annotations

from bppsa_cupy.plan.budget import Budget
from bppsa_cupy.plan.cost import schedule_cost
from bppsa_cupy.plan.schedule import Schedule, every_hybrid
from bppsa_cupy.plan.search.search import Search
from bppsa_cupy.plan.search.segment_costs import is_searched
from bppsa_cupy.plan.sizes import CountedSizes


def compute_schedule(sizes: CountedSizes, budget: Budget) -> Schedule:
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

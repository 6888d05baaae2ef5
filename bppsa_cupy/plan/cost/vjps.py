"""Which elements of a schedule are crossed by their layers' VJPs, in place of matrices that are filled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bppsa_cupy.plan.budget import Budget
from bppsa_cupy.plan.cost.schedules import preparation_seconds, schedule_cost, step_seconds, surroundings
from bppsa_cupy.plan.schedule import BEGIN, END, KIND, SPLIT, Schedule
from bppsa_cupy.plan.sizes import ChainSizes


def with_vjps(sizes: ChainSizes, schedule: Schedule, budget: Budget) -> Schedule:
    """`schedule` with VJPs in place of elements that it multiplies by a vector alone, where that is predicted
    to take less time: filling, multiplying and moving vectors between two layouts against the VJPs.

    The best choice for one worker, by dynamic programming over elements: what is moved before and after an
    element follows from it and its neighbours. Equal times fill.
    """
    chain, n = sizes.chain, len(sizes.chain)
    if n < 2:
        return schedule
    around, table = surroundings(chain, budget), schedule.table
    by_vector = (table[:, KIND] == 0) & (table[:, END] == table[:, SPLIT] + 1)
    single, multiplied, longer = (np.zeros(n + 2, bool) for _ in range(3))
    single[[*table[by_vector, SPLIT].tolist(), n]] = True  # a_n: where the input's gradient is wanted
    products = table[table[:, KIND] == 1]
    for begin, end in ((BEGIN, SPLIT), (SPLIT, END)):
        multiplied[products[products[:, end] == products[:, begin] + 1, begin]] = True
    longer[table[(table[:, KIND] == 0) & ~by_vector, SPLIT]] = True
    alone = np.flatnonzero(single & ~multiplied)
    rows = np.zeros((alone.size, 6), np.int64)
    rows[:, SPLIT], rows[:, END] = alone, alone + 1
    multiply, cross = np.zeros(n + 1), np.full(n + 1, np.inf)
    made = Schedule("", n, rows)
    multiply[alone] = step_seconds(sizes, made, budget)
    cross[alone] = step_seconds(sizes, replace(made, vjps=tuple(alone.tolist())), budget)
    least = np.array([np.inf, 0.0])  # until here, where the vector is filled for, and as layers have it
    chosen = np.zeros((n + 1, 2), np.int64)
    for k in range(1, n + 1):
        move, fill = around.move[k - 1], around.fill[k - 1]
        # By how v(k) came, as the scan has it or as layers do, and by how a_k is gone through.
        seconds = np.array(
            [
                [move * around.shared[k - 1], move],
                [move * (longer[k] | single[k]), move * longer[k]],
            ]
        )
        seconds += [fill + multiply[k], cross[k]]
        total = least[:, None] + seconds
        chosen[k] = total.argmin(0)
        least = total.min(0)
    at = int(least.argmin())
    crossed = []
    for k in range(n, 0, -1):
        if at:
            crossed.append(k)
        at = chosen[k, at]
    return replace(schedule, vjps=tuple(reversed(crossed)))


def scan_seconds(sizes: ChainSizes, schedule: Schedule, budget: Budget) -> float:
    """The predicted time of a scan with what surrounds it."""
    return schedule_cost(sizes, schedule, budget).seconds + preparation_seconds(sizes.chain, budget, schedule)

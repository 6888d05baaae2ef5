"""The schedules: the serial scan, algorithm 1 of the paper, and hybrids of both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.schedule import END, LEVEL, WORKER, Schedule, Step, up_sweep_levels


def linear(n: int) -> Schedule:
    """The serial scan: v(k + 1) = M(k, k + 1)·v(k) for k = 1, …, n - 1 (equation 3)."""
    return _without_dead("linear", n, 0)


def blelloch(n: int) -> Schedule:
    """Algorithm 1 of the paper, the modified Blelloch scan, for any n >= 0."""
    return _without_dead("blelloch", n, up_sweep_levels(n))


def hybrid(n: int, levels: int) -> Schedule:
    """`levels` levels of up-sweep, the serial scan over the blocks that are left, the matching down-sweep.

    The blocks hold 2**levels elements (paper, section 5.3). hybrid(n, 0) has the steps of linear(n) and
    hybrid(n, up_sweep_levels(n)) those of blelloch(n). Raises PlanError for any other number of levels.
    """
    most = up_sweep_levels(n)
    if not 0 <= levels <= most:
        raise PlanError(f"{levels} up-sweep levels were asked for: a chain of {n} matrices takes 0 to {most}")
    return replace(_without_dead("hybrid", n, levels), levels=levels)


def hybrid_of_at_most(n: int, levels: int) -> Schedule:
    """hybrid(n, levels), or of as many levels as a shorter chain takes.

    With 3 levels these are the products of the hand-picked schedule of section 5.3 and figure 10, whose
    down-sweep begins with level L7.
    """
    return hybrid(n, min(levels, up_sweep_levels(n)))


def every_hybrid(n: int) -> list[Schedule]:
    """hybrid(n, levels) for every number of levels, from 0 on."""
    return [hybrid(n, levels) for levels in range(up_sweep_levels(n) + 1)]


def with_input_gradient(schedule: Schedule) -> Schedule:
    """`schedule` and one more step at the end, v(n + 1) = M(n, n + 1)·v(n).

    The schedule itself where it has that step, or where n is 0 (v(1) is the input gradient then).
    """
    n = schedule.n
    if n == 0 or schedule.computes_input_gradient:
        return schedule
    return replace(schedule, table=np.vstack([schedule.table, [schedule.depth, 0, n, n + 1, 0, 0]]))


def dead_products(n: int, levels: int) -> tuple[Step, ...]:
    """The products of the printed algorithm that no v(1), …, v(n) needs: `hybrid` leaves them out.

    They are the products of the up-sweep whose right end is a_n (the exclusive scan never reads the
    total), in a convolutional network the largest ones.
    """
    every = _all_steps(n, levels)
    return Schedule("", n, every[every[:, END] > n]).steps


def _without_dead(name: str, n: int, levels: int) -> Schedule:
    """Algorithm 1 with `levels` up-sweep levels, without its dead products."""
    every = _all_steps(n, levels)
    return _numbered(Schedule(name, n, every[every[:, END] <= n]))


def _all_steps(n: int, levels: int) -> np.ndarray:
    """The table of all products of algorithm 1 with `levels` up-sweep levels, dead ones included."""
    columns = [np.zeros((6, 0), np.int64)]

    def add(level: int | np.ndarray, begin: int | np.ndarray, split: np.ndarray, length: int) -> None:
        end = np.minimum(split + length, n + 1)
        steps = np.broadcast_arrays(level, begin, split, end, np.not_equal(begin, 0), 0)
        columns.append(np.array(steps, np.int64))

    for d in range(levels):
        begin = np.arange(0, n - 2**d + 1, 2 ** (d + 1))
        add(d, begin, begin + 2**d, 2**d)
    block = 2**levels
    # v(block) is a_0, or a result of the up-sweep.
    middle = np.arange(block, n - block + 1, block)
    add(levels + np.arange(middle.size), 0, middle, block)
    # The level of moves alone with which the down-sweep of algorithm 1 starts is kept as a number.
    start = levels + max(middle.size, 1)
    for d in reversed(range(levels)):
        add(start + levels - 1 - d, 0, np.arange(2 ** (d + 1), n - 2**d + 1, 2 ** (d + 1)), 2**d)
    return np.hstack(columns).T


def _numbered(schedule: Schedule) -> Schedule:
    """The schedule with a worker a step of a level."""
    table = schedule.table.copy()
    table[:, WORKER] = np.arange(len(table)) - np.searchsorted(table[:, LEVEL], table[:, LEVEL])
    return replace(schedule, table=table)

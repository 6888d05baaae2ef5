"""Multiply-adds of steps, and the critical path of schedules in multiply-adds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import heapify, heappop, heappush

import numpy as np

from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.memory import Budget
from bppsa_cupy.plan.partition import place
from bppsa_cupy.plan.schedule import BEGIN, END, KIND, SPLIT, WORKER, Schedule
from bppsa_cupy.plan.sizes import ChainSizes


def multiply_adds(sizes: ChainSizes, schedule: Schedule, batch_size: int) -> list[int]:
    """The multiply-adds of every step, in the schedule's order. A product of shared matrices runs once per
    batch."""
    return [
        sizes.multiply_adds(step)
        * (1 if step.kind != "vjp" and sizes.chain.shared(*step.out) else batch_size)
        for step in schedule.steps
    ]


def critical_path(sizes: ChainSizes, schedule: Schedule, budget: Budget) -> int:
    """The multiply-adds on the critical path of a schedule on the budget's workers."""
    return assign_workers(sizes, schedule, budget)[1]


def assign_workers(sizes: ChainSizes, schedule: Schedule, budget: Budget) -> tuple[Schedule, int]:
    """The schedule with the worker of each step, and its critical path on the budget's workers.

    Of the steps that are ready, the one with the longest path after it runs first; ties go to the segment
    that ends first, then to the one that begins first. Over ranks each step runs on its owner in the
    schedule's order, and messages cost nothing.
    """
    durations = list(map(float, multiply_adds(sizes, schedule, budget.batch_size)))
    operands, count = schedule.makers.tolist(), len(durations)
    if budget.owners is not None:
        placed = place(schedule, budget.owners, budget.workers).schedule
        free, ends = [0.0] * budget.workers, list[float]()
        for both, rank, duration in zip(operands, placed.table[:, WORKER].tolist(), durations, strict=True):
            start = max([free[rank], *(ends[operand] for operand in both if operand >= 0)])
            free[rank] = start + duration
            ends.append(free[rank])
        return placed, int(max(free))
    ties = (schedule.out @ np.array([1, schedule.n + 2])).tolist()
    behind, waiting = durations.copy(), [0] * count
    readers: list[list[int]] = [[] for _ in range(count)]
    for step in reversed(range(count)):
        for operand in operands[step]:
            if operand >= 0:
                behind[operand] = max(behind[operand], durations[operand] + behind[step])
                waiting[step] += 1
                readers[operand].append(step)
    ready = [(-behind[step], ties[step], step) for step in range(count) if not waiting[step]]
    heapify(ready)
    idle, assigned = list(range(min(budget.workers, count))), [0] * count
    running: list[tuple[float, int]] = []
    now = 0.0
    while ready or running:
        while ready and idle:
            step = heappop(ready)[2]
            assigned[step] = heappop(idle)
            heappush(running, (now + durations[step], step))
        now = running[0][0]
        while running and running[0][0] == now:
            step = heappop(running)[1]
            heappush(idle, assigned[step])
            for reader in readers[step]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    heappush(ready, (-behind[reader], ties[reader], reader))
    return schedule.with_workers(assigned), int(now)


def shortest(sizes: ChainSizes, schedules: Iterable[Schedule], budget: Budget) -> Schedule:
    """The schedule with the shortest critical path that fits the budget's memory; the first where none does.
    Ties go to the first."""
    every = list(schedules)
    lengths = [critical_path(sizes, schedule, budget) for schedule in every]
    order = sorted(range(len(every)), key=lambda k: lengths[k])
    return next((every[k] for k in order if budget.fits(budget.bytes(sizes, every[k]))), every[0])


def vjp_multiply_adds(chain: Chain, batch_size: int) -> int:
    """Multiply-adds of back-propagation, v(2) to v(n) by one VJP after the other."""
    return sum(element.vjp_terms for element in chain.elements[:-1]) * batch_size


def with_vjps(chain: Chain, schedule: Schedule) -> Schedule:
    """The schedule with VJPs in place of elements that it multiplies by a vector and by nothing else, where
    the VJP takes no more multiply-adds than the matrix has entries."""
    n, table = len(chain), schedule.table
    if n < 2:
        return schedule
    single, multiplied = np.zeros(n + 2, bool), np.zeros(n + 2, bool)
    single[table[(table[:, KIND] == 0) & (table[:, END] == table[:, SPLIT] + 1), SPLIT]] = True
    single[n] = True  # a_n is read where the gradient by the input is wanted
    products = table[table[:, KIND] == 1]
    for begin, end in ((BEGIN, SPLIT), (SPLIT, END)):
        multiplied[products[products[:, end] == products[:, begin] + 1, begin]] = True
    crossed = [
        k
        for k in np.flatnonzero(single & ~multiplied).tolist()
        if chain.elements[k - 1].vjp_terms <= chain.elements[k - 1].pattern.nnz
    ]
    return replace(schedule, vjps=tuple(crossed))

"""Multiply-adds of steps, and the critical path of schedules in multiply-adds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import heapify, heappop, heappush

import numpy as np

from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.memory import Budget
from bppsa_cupy.plan.schedule import BEGIN, END, KIND, SPLIT, Schedule
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
    """The multiply-adds on the critical path of a schedule on the budget's workers.

    Of the steps that are ready, the one with the longest path after it runs first; ties go to the segment
    that ends first, then to the one that begins first.
    """
    durations = list(map(float, multiply_adds(sizes, schedule, budget.batch_size)))
    operands, count = schedule.makers.tolist(), len(durations)
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
    running: list[tuple[float, int]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < budget.workers:
            step = heappop(ready)[2]
            heappush(running, (now + durations[step], step))
        now = running[0][0]
        while running and running[0][0] == now:
            step = heappop(running)[1]
            for reader in readers[step]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    heappush(ready, (-behind[reader], ties[reader], reader))
    return int(now)


def shortest(sizes: ChainSizes, schedules: Iterable[Schedule], budget: Budget) -> Schedule:
    """The schedule with the shortest critical path that fits the budget's memory; the first where none does.
    Ties go to the first."""
    every = list(schedules)
    lengths = [critical_path(sizes, schedule, budget) for schedule in every]
    order = sorted(range(len(every)), key=lambda k: lengths[k])
    return next((every[k] for k in order if budget.fits(budget.bytes(sizes, every[k]))), every[0])


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

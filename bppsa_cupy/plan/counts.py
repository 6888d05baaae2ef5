"""Multiply-adds of steps, and the critical path of schedules in multiply-adds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.memory import Budget
from bppsa_cupy.plan.partition import place
from bppsa_cupy.plan.schedule import BEGIN, END, KIND, SPLIT, WORKER, Schedule, Step
from bppsa_cupy.plan.sizes import ChainSizes


class StepCounts(NamedTuple):
    """The counts of one step.

    `kind` is the kind of the product, "csr_mv" for a matrix times a vector, or "vjp" for the VJP of a layer.
    `nnz` counts the entries of the result, or the rows of a vector. `multiply_adds` are for the batch: a
    product of shared matrices runs once per batch.
    """

    step: Step
    kind: str
    nnz: int
    multiply_adds: int


def all_counts(sizes: ChainSizes, schedule: Schedule, budget: Budget) -> list[StepCounts]:
    """The counts of every step, in the schedule's order."""
    counts = []
    for step in schedule.steps:
        shared = step.kind != "vjp" and sizes.chain.shared(*step.out)
        terms = sizes.multiply_adds(step) * (1 if shared else budget.batch_size)
        kind, nnz = "vjp" if step.kind == "vjp" else "csr_mv", sizes.chain.length(step.end)
        if step.kind == "mm":
            kind, nnz = sizes.product(step).kind, sizes.nnz(step.out)
        counts.append(StepCounts(step, kind, nnz, terms))
    return counts


def run_schedule(sizes: ChainSizes, schedule: Schedule, budget: Budget) -> tuple[Schedule, int]:
    """The schedule with the worker of each step, and its critical path on the budget's workers.

    Of the steps that are ready, the one with the longest path after it runs first; ties go to the segment
    that ends first, then to the one that begins first. Over ranks each step runs on its owner in the
    schedule's order, and messages cost nothing.
    """
    durations = [float(counts.multiply_adds) for counts in all_counts(sizes, schedule, budget)]
    operands = schedule.makers.tolist()
    if budget.owners is None:
        ties = (schedule.out @ np.array([1, schedule.n + 2])).tolist()
        workers, length = _assign_workers(operands, durations, ties, budget.workers)
        return schedule.with_workers(np.array(workers, np.int64)), length
    placed = place(schedule, budget.owners, budget.workers).schedule
    free = [0.0] * budget.workers
    ends: list[float] = []
    for both, rank, duration in zip(operands, placed.table[:, WORKER].tolist(), durations, strict=True):
        start = max([free[rank], *(ends[operand] for operand in both if operand >= 0)])
        free[rank] = start + duration
        ends.append(free[rank])
    return placed, int(max(free))


def _assign_workers(
    operands: list[list[int]], durations: list[float], ties: list[int], workers: int
) -> tuple[list[int], int]:
    """The worker of each step, and when the last step ends. `operands` gives, for each step, the positions of
    the steps that compute its operands, and -1 for an input."""
    count = len(durations)
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
    idle, assigned = list(range(min(workers, count))), [0] * count
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
    return assigned, int(now)


def shortest(sizes: ChainSizes, schedules: Iterable[Schedule], budget: Budget) -> Schedule:
    """The schedule with the shortest critical path that fits the budget's memory; the first where none does.
    Ties go to the first."""
    every = list(schedules)
    lengths = [run_schedule(sizes, schedule, budget)[1] for schedule in every]
    order = sorted(range(len(every)), key=lambda k: lengths[k])
    return next((every[k] for k in order if budget.fits(budget.bytes(sizes, every[k]))), every[0])


def vjp_multiply_adds(chain: Chain, budget: Budget) -> int:
    """Multiply-adds of back-propagation, v(2) to v(n) by one VJP after the other."""
    return sum(element.vjp_terms for element in chain.elements[:-1]) * budget.batch_size


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

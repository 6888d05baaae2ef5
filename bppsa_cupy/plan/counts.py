"""Multiply-adds and bytes of steps, and the critical path of schedules in multiply-adds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import loops
from bppsa_cupy.plan.budget import Budget
from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.partition import RankSchedule, place
from bppsa_cupy.plan.schedule import BEGIN, END, KIND, SPLIT, WORKER, Schedule, Step
from bppsa_cupy.plan.sizes import ChainSizes


class StepCounts(NamedTuple):
    """The counts of one step.

    kind           of the product, "csr_mv" for a matrix times a vector
    nnz            entries of the result; rows of v(end) for a vector
    multiply_adds  for the whole batch; a product of shared matrices runs once per batch
    bytes          values read and written, and index arrays read
    """

    step: Step
    kind: str
    nnz: int
    multiply_adds: int
    bytes: int


class Timetable(NamedTuple):
    """When steps run, in multiply-adds.

    starts   (steps,)
    workers  (steps,) int64, which worker runs each step
    length   until the last step ends: the critical path on these workers
    unbounded  the critical path on as many workers as there are steps
    """

    starts: np.ndarray
    workers: np.ndarray
    length: int
    unbounded: int


def step_counts(sizes: ChainSizes, step: Step, budget: Budget) -> StepCounts:
    """The counts of one step."""
    batch = budget.batch_size
    length = sizes.chain.length(step.end)
    if step.kind == "vjp":
        moved = (sizes.chain.length(step.split) + length) * batch * budget.itemsize
        return StepCounts(step, "vjp", length, sizes.multiply_adds(step) * batch, moved)
    terms = sizes.multiply_adds(step) * (1 if sizes.chain.shared(*step.out) else batch)
    values = sum(sizes.values_size(segment, batch) for segment in (step.left, step.right, step.out))
    index_bytes = 4 * sum(sizes.nnz(s) for s in (step.left, step.right) if s[0] > 0)
    moved = values * budget.itemsize + index_bytes + sizes.map_bytes(step)
    if step.kind == "mm":
        return StepCounts(step, sizes.kind(step), sizes.nnz(step.out), terms, moved)
    return StepCounts(step, "csr_mv", length, terms, moved)


def all_counts(sizes: ChainSizes, schedule: Schedule, budget: Budget) -> list[StepCounts]:
    """The counts of every step, in the schedule's order."""
    first, which = _different(sizes, schedule)
    different = [step_counts(sizes, schedule.step(k), budget) for k in first]
    steps = zip(which.tolist(), schedule.steps, strict=True)
    return [different[k]._replace(step=step) for k, step in steps]


def multiply_adds(sizes: ChainSizes, schedule: Schedule, budget: Budget) -> np.ndarray:
    """(steps,) float64 multiply-adds of every step."""
    first, which = _different(sizes, schedule)
    counts = [step_counts(sizes, schedule.step(k), budget).multiply_adds for k in first]
    return np.array(counts, np.float64)[which]


def _different(sizes: ChainSizes, schedule: Schedule) -> tuple[list[int], np.ndarray]:
    """Positions of steps whose counts differ, and the index among them of each step's counts."""
    operands = np.stack([schedule.left, schedule.right], 1)
    inner = operands[..., 0] > 0
    numbers = np.full(inner.shape, -1)
    numbers[inner] = 2 * sizes.pattern_numbers(operands[inner]) + sizes.chain.all_shared(operands[inner])
    codes = (numbers[:, 0] + 1) * (numbers.max(initial=0) + 1) + numbers[:, 1]
    if schedule.vjps:
        elements, crossed = sizes.chain.elements, schedule.crossed
        terms = [elements[k - 1].vjp_terms for k in schedule.table[crossed, SPLIT].tolist()]
        by_vjp = np.zeros_like(codes)
        by_vjp[crossed] = 1 + np.unique(terms, return_inverse=True)[1]
        codes = codes * (by_vjp.max() + 1) + by_vjp
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    return first.tolist(), which


def timetable(operands: np.ndarray, segments: np.ndarray, durations: np.ndarray, workers: int) -> Timetable:
    """Run steps on workers: of those that are ready the one with the longest path after it goes first.

    operands   (steps, 2) positions of the steps whose results a step reads, earlier ones; -1 for an input
    segments   (steps, 2) that the steps compute
    durations  (steps,) multiply-adds of each step

    Deterministic: ties go to the segment that ends first, then to the one that begins first, and to the
    lower worker. A step starts when its operands are there. Raises PlanError below one worker.
    """
    if workers < 1:
        raise PlanError(f"{workers} workers were asked for: a schedule takes at least 1")
    rank = segments[:, 1] * (segments.max(initial=0) + 1) + segments[:, 0]
    starts, assigned, lengths = np.zeros(rank.size), np.zeros(rank.size, np.int64), np.zeros(2)
    loops.assign(operands, rank, np.asarray(durations, np.float64), workers, starts, assigned, lengths)
    return Timetable(starts, assigned, int(lengths[0]), int(lengths[1]))


def run_schedule(sizes: ChainSizes, schedule: Schedule, budget: Budget) -> tuple[Schedule, int]:
    """The schedule with the worker of each step, and its critical path on the budget's workers; over ranks
    each step runs on its owner, and messages cost nothing."""
    durations = multiply_adds(sizes, schedule, budget)
    if budget.owners is None:
        times = timetable(schedule.makers, schedule.out, durations, budget.workers)
        return schedule.with_workers(times.workers), times.length
    placed = place(schedule, budget.owners, budget.workers).schedule
    free = np.zeros(budget.workers)
    loops.run_in_order(schedule.makers, placed.table[:, WORKER].copy(), durations, free)
    return placed, int(free.max(initial=0))


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


def message_bytes(sizes: ChainSizes, placement: RankSchedule, batch_size: int, itemsize: int) -> np.ndarray:
    """(messages,) the bytes of each message's values."""
    return sizes.values_sizes(placement.sent[:, 1:3], batch_size) * itemsize

"""What a schedule costs: multiply-adds, bytes and predicted time, by step, by level and in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.cost.model import CostModel, find_model
from bppsa_cupy.plan.schedule import BEGIN, END, WORKER, Schedule, Step
from bppsa_cupy.plan.search import loops as search_loops
from bppsa_cupy.plan.sizes.chain_sizes import ChainSizes


@dataclass(frozen=True)
class StepCost:
    """One step.

    kind           of the product, "csr_mv" for a matrix times a vector
    nnz            entries of the result; rows of v(end) for a vector
    multiply_adds  for the whole batch
    bytes          values read and written, and index arrays read
    map_bytes      of the product's maps, counted in `bytes` too
    seconds        predicted, launch included
    """

    step: Step
    kind: str
    nnz: int
    multiply_adds: int
    bytes: int
    map_bytes: int
    seconds: float


@dataclass(frozen=True, eq=False)
class ScheduleCost:
    """A schedule run by a number of workers.

    schedule  with the worker of each step
    different the costs of steps that differ in them, each for one of its steps
    which     (steps,) the position in `different` of each step's cost
    starts    seconds at which each step starts
    seconds   until the last one ends
    critical_path  seconds of the longest chain of steps each of which needs the one before
    """

    schedule: Schedule
    different: tuple[StepCost, ...]
    which: np.ndarray
    starts: tuple[float, ...]
    seconds: float
    critical_path: float

    @cached_property
    def steps(self) -> tuple[StepCost, ...]:
        """The cost of each step, in the schedule's order."""
        steps = zip(self.which.tolist(), self.schedule.steps, strict=True)
        return tuple(replace(self.different[k], step=step) for k, step in steps)

    @property
    def multiply_adds(self) -> int:
        return sum(step.multiply_adds for step in self.steps)

    @property
    def bytes(self) -> int:
        return sum(step.bytes for step in self.steps)


def step_cost(counts: ChainSizes, step: Step, batch_size: int, itemsize: int, model: CostModel) -> StepCost:
    """The cost of one step. Shared products of shared operands are one product for the whole batch."""
    terms = counts.multiply_adds(step)
    per_batch = 1 if counts.chain.shared(*step.out) else batch_size
    values = sum(counts.values_size(segment, batch_size) for segment in (step.left, step.right, step.out))
    map_bytes = counts.map_bytes(step)
    index_bytes = 4 * sum(counts.nnz(s) for s in (step.left, step.right) if s[0] > 0) + map_bytes
    moved = values * itemsize + index_bytes
    kind = counts.kind(step) if step.kind == "mm" else "csr_mv"
    return StepCost(
        step=step,
        kind=kind,
        nnz=counts.nnz(step.out) if step.kind == "mm" else counts.chain.length(step.end),
        multiply_adds=terms * per_batch,
        bytes=moved,
        map_bytes=map_bytes,
        seconds=model.work_seconds(kind, terms * per_batch, moved, per_batch) + model.seconds_per_launch,
    )


def schedule_cost(
    counts: ChainSizes,
    schedule: Schedule,
    *,
    batch_size: int,
    itemsize: int,
    workers: int,
    model: str | CostModel = "ideal",
) -> ScheduleCost:
    """The cost of `schedule` on `workers` workers, its steps placed by `list_schedule`."""
    chosen = find_model(model)
    first, which = _different(counts, schedule)
    costs = [step_cost(counts, schedule.step(k), batch_size, itemsize, chosen) for k in first]
    seconds = np.array([cost.seconds for cost in costs], np.float64)[which]
    placed, starts, makespan, critical = list_schedule(schedule, seconds, workers)
    return ScheduleCost(placed, tuple(costs), which, starts, makespan, critical)


def _different(counts: ChainSizes, schedule: Schedule) -> tuple[list[int], np.ndarray]:
    """Positions of steps that differ in what `step_cost` reads, and which of them each step is like."""
    operands = np.stack([schedule.left, schedule.right], 1)
    inner = operands[..., 0] > 0
    numbers = np.full(inner.shape, -1)
    numbers[inner] = 2 * counts.pattern_numbers(operands[inner]) + counts.chain.all_shared(operands[inner])
    codes = (numbers[:, 0] + 1) * (numbers.max(initial=0) + 1) + numbers[:, 1]
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    return first.tolist(), which


def vjp_seconds(chain: Chain, batch_size: int, itemsize: int, model: CostModel) -> float:
    """The predicted time of ordinary back-propagation, v(2) to v(n) by one VJP after the other."""
    seconds = 0.0
    for k, element in enumerate(chain.elements[:-1], 1):
        vectors = (chain.length(k) + chain.length(k + 1)) * batch_size * itemsize
        seconds += model.work_seconds("vjp", element.vjp_terms * batch_size, vectors)
        seconds += model.seconds_per_call
    return seconds


def preparation_seconds(chain: Chain, batch_size: int, itemsize: int, model: CostModel) -> float:
    """The predicted time of what surrounds a scan: values of all Jacobians it reads, and vectors moved.

    Moved into the layers' layout are the gradient by the output, and those by the output of layers with
    parameters, which are taken to be the ones with shared values. a_n is never read.
    """
    seconds = 0.0
    for k, element in enumerate(chain.elements, 1):
        nnz, moved = element.pattern.nnz, chain.length(k) * batch_size * itemsize
        if k < len(chain):
            values = nnz if element.shared else nnz * batch_size
            seconds += model.work_seconds("fill", values, values * itemsize + 4 * nnz)
            seconds += model.seconds_per_call
        if k == 1 or element.shared:
            seconds += model.work_seconds("transpose", 0, 2 * moved) + model.seconds_per_call
    return seconds


def list_schedule(
    schedule: Schedule, seconds: Sequence[float] | np.ndarray, workers: int
) -> tuple[Schedule, tuple[float, ...], float, float]:
    """Place the steps on workers: the ready step with the longest path behind it goes first.

    seconds  of every step, in the schedule's order

    Returns the schedule with its workers, each step's start, the time the last one ends, and the
    length of the critical path. Deterministic: ties go to the segment that ends first, then to the one
    that begins first, and to the lower worker; the order of the steps and their levels play no part. A
    step starts when its operands are there. Raises PlanError below one worker.
    """
    if workers < 1:
        raise PlanError(f"{workers} workers were asked for: a schedule takes at least 1")
    rank = schedule.table[:, END] * (schedule.n + 2) + schedule.table[:, BEGIN]
    starts, placed, lengths = np.zeros(rank.size), np.zeros(rank.size, np.int64), np.zeros(2)
    search_loops.place(
        schedule.makers,
        rank,
        np.array(seconds, np.float64),
        workers,
        starts,
        placed,
        lengths,
    )
    table = schedule.table.copy()
    table[:, WORKER] = placed
    return replace(schedule, table=table), tuple(starts.tolist()), float(lengths[0]), float(lengths[1])

"""What a schedule costs: multiply-adds, bytes and predicted time, by step, by level and in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bppsa_cupy.plan.budget import Budget
from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.cost.list_scheduler import list_schedule
from bppsa_cupy.plan.cost.ranks import rank_times
from bppsa_cupy.plan.partition import place
from bppsa_cupy.plan.schedule import BEGIN, SPLIT, Schedule, Step
from bppsa_cupy.plan.sizes import ChainSizes


@dataclass(frozen=True)
class StepCost:
    """One step.

    kind           of the product, "csr_mv" for a matrix times a vector
    nnz            entries of the result; rows of v(end) for a vector
    multiply_adds  for the whole batch
    bytes          values read and written, and index arrays read
    seconds        predicted, launch included
    """

    step: Step
    kind: str
    nnz: int
    multiply_adds: int
    bytes: int
    seconds: float


@dataclass(frozen=True, eq=False)
class ScheduleCost:
    """A schedule run by a budget's workers.

    schedule  with the worker of each step
    different the costs of steps that differ in them, each for one of its steps
    which     (steps,) the position in `different` of each step's cost
    seconds   until the last one ends
    critical_path  seconds of the longest chain of steps each of which needs the one before
    """

    schedule: Schedule
    different: tuple[StepCost, ...]
    which: np.ndarray
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


def step_cost(sizes: ChainSizes, step: Step, budget: Budget) -> StepCost:
    """The cost of one step. Shared products of shared operands are one product for the whole batch."""
    batch, model = budget.batch_size, budget.model
    if step.kind == "vjp":
        return StepCost(
            step, "vjp", sizes.chain.length(step.end), *_vjp_cost(sizes.chain, step.split, budget)
        )
    per_batch = 1 if sizes.chain.shared(*step.out) else batch
    terms = sizes.multiply_adds(step) * per_batch
    values = sum(sizes.values_size(segment, batch) for segment in (step.left, step.right, step.out))
    index_bytes = 4 * sum(sizes.nnz(s) for s in (step.left, step.right) if s[0] > 0)
    moved = values * budget.itemsize + index_bytes + sizes.map_bytes(step)
    kind = sizes.kind(step) if step.kind == "mm" else "csr_mv"
    return StepCost(
        step=step,
        kind=kind,
        nnz=sizes.nnz(step.out) if step.kind == "mm" else sizes.chain.length(step.end),
        multiply_adds=terms,
        bytes=moved,
        seconds=model.work_seconds(kind, terms, moved, per_batch) + model.seconds_per_launch,
    )


def schedule_cost(sizes: ChainSizes, schedule: Schedule, budget: Budget) -> ScheduleCost:
    """The cost of `schedule`, its steps run by `list_schedule`, or where the budget has owners by `place`."""
    costs, which = _different_costs(sizes, schedule, budget)
    seconds = _seconds(costs, which)
    assigned, times = list_schedule(schedule, seconds, budget.workers)
    if budget.owners is None:
        return ScheduleCost(assigned, costs, which, times.seconds, times.critical_path)
    placement = place(schedule, budget.owners, budget.workers)
    over_ranks = rank_times(sizes, placement, seconds, budget.model.link, budget.batch_size, budget.itemsize)
    return ScheduleCost(placement.schedule, costs, which, over_ranks.seconds, times.critical_path)


def step_seconds(sizes: ChainSizes, schedule: Schedule, budget: Budget) -> np.ndarray:
    """(steps,) the predicted time of every step."""
    return _seconds(*_different_costs(sizes, schedule, budget))


def _seconds(costs: Sequence[StepCost], which: np.ndarray) -> np.ndarray:
    return np.array([cost.seconds for cost in costs], np.float64)[which]


def _different_costs(
    sizes: ChainSizes, schedule: Schedule, budget: Budget
) -> tuple[tuple[StepCost, ...], np.ndarray]:
    """The costs of steps that differ in them, and which of them each step has."""
    first, which = _different(sizes, schedule)
    return tuple(step_cost(sizes, schedule.step(k), budget) for k in first), which


def _different(sizes: ChainSizes, schedule: Schedule) -> tuple[list[int], np.ndarray]:
    """Positions of steps that differ in what `step_cost` reads, and which of them each step is like."""
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


def vjp_seconds(chain: Chain, budget: Budget) -> float:
    """The predicted time of ordinary back-propagation, v(2) to v(n) by one VJP after the other, on whichever
    rank the budget's owners say, with the messages between them."""
    steps = (_vjp_cost(chain, k, budget)[-1] for k in range(1, len(chain)))
    return sum(steps, start=vjp_message_seconds(chain, budget))


def _vjp_cost(chain: Chain, k: int, budget: Budget) -> tuple[int, int, float]:
    """Multiply-adds, bytes and seconds of the VJP of the layer of a_k."""
    batch, model = budget.batch_size, budget.model
    terms = chain.elements[k - 1].vjp_terms * batch
    vectors = (chain.length(k) + chain.length(k + 1)) * batch * budget.itemsize
    return terms, vectors, model.work_seconds("vjp", terms, vectors) + model.seconds_per_call


def vjp_message_seconds(chain: Chain, budget: Budget) -> float:
    """The predicted time of the messages of ordinary back-propagation: a vector over each border of ranks."""
    if budget.owners is None:
        return 0.0
    lengths = chain.lengths[np.flatnonzero(np.diff(budget.owners)) + 2]
    return float(budget.model.link.seconds(lengths * budget.batch_size * budget.itemsize).sum())


def preparation_seconds(chain: Chain, budget: Budget, schedule: Schedule | None = None) -> float:
    """The predicted time of what surrounds a scan: values of all Jacobians it reads, and vectors moved
    between its layout and the layers'.

    schedule  whose VJPs need no values, and take and give vectors as layers have them; None for one without

    The gradient by the output comes in the layers' layout. In that are read the gradients by the output of
    layers that are crossed by their VJPs, or have parameters, which are taken to be the ones with shared
    values. a_n is read by a schedule with the input's gradient alone. Ranks prepare their own elements at
    once: it is the time of the one that takes longest.
    """
    if len(chain) == 0:
        return 0.0
    around = surroundings(chain, budget)
    fill, move = around.fill.copy(), around.move.copy()
    reads_last = schedule is not None and schedule.computes_input_gradient
    fill[-1] *= reads_last
    moved = around.shared.copy()
    moved[0] = True
    if schedule is not None and schedule.vjps:
        by_vjp = np.isin(np.arange(1, len(chain) + 1), schedule.vjps)
        fill[by_vjp] = 0.0
        reads = np.zeros(len(chain) + 1, bool)
        reads[schedule.table[(schedule.table[:, BEGIN] == 0) & ~schedule.crossed, SPLIT]] = True
        as_layers = np.append(True, by_vjp[:-1])
        by_vjp[-1] &= reads_last
        moved = np.where(as_layers, reads[1:], by_vjp | around.shared)
    owners = np.zeros(len(chain), np.int64) if budget.owners is None else np.array(budget.owners)
    return float(np.bincount(owners, fill + move * moved).max())


class Surroundings(NamedTuple):
    """What each element may take before and after a scan, (n,), from a_1 on.

    fill    seconds that its values take
    move    seconds of the gradient by its layer's output from one layout to the other
    shared  whether one set of values serves every sample
    """

    fill: np.ndarray
    move: np.ndarray
    shared: np.ndarray


def surroundings(chain: Chain, budget: Budget) -> Surroundings:
    """What each element of a chain that is not empty may take before and after a scan."""
    n, batch, itemsize, model = len(chain), budget.batch_size, budget.itemsize, budget.model
    elements = np.arange(1, n + 1)
    shared = chain.all_shared(np.stack([elements, elements + 1], 1))
    _, first, which = np.unique(2 * chain.patterns[1][1:] + shared, return_index=True, return_inverse=True)
    fills, moves = np.zeros(first.size), np.zeros(first.size)
    for kind, k in enumerate((first + 1).tolist()):
        nnz, moved = chain.elements[k - 1].pattern.nnz, chain.length(k) * batch * itemsize
        values = nnz if shared[k - 1] else nnz * batch
        fills[kind] = model.work_seconds("fill", values, values * itemsize + 4 * nnz) + model.seconds_per_call
        moves[kind] = model.work_seconds("transpose", 0, 2 * moved) + model.seconds_per_call
    return Surroundings(fills[which], moves[which], shared)

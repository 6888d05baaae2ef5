"""Building a plan: count, choose, check against the memory limit, and only then multiply."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tqdm import tqdm

from bppsa_cupy.arguments import as_integer, as_list, is_one_of
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.chain_plan import ChainPlan, multiply_chain
from bppsa_cupy.plan.compare import fingerprint
from bppsa_cupy.plan.counts import run_schedule, shortest, with_vjps
from bppsa_cupy.plan.memory import Budget
from bppsa_cupy.plan.partition import Partition, as_partition
from bppsa_cupy.plan.plan import Plan
from bppsa_cupy.plan.product import Product
from bppsa_cupy.plan.schedule import (
    KIND,
    SCHEDULES,
    Schedule,
    blelloch,
    every_hybrid,
    hybrid,
    hybrid_of_at_most,
    linear,
    up_sweep_levels,
)
from bppsa_cupy.plan.sizes import ChainSizes


def build_plan(
    chains: Sequence[Chain],
    network: Mapping[str, Any],
    budget: Budget,
    *,
    schedules: Sequence[str] | None = None,
    levels: int | str = "auto",
    partition: Partition | None = None,
    vjps: bool = False,
    progress: bool = False,
    tell: Callable[[str], None] | None = None,
) -> Plan:
    """Plan the scans of a network's chains.

    network       its geometry and masks as JSON holds them
    budget        batch size, bytes of a value, workers, and the memory of one schedule
    schedules     which ones; by default all that fit the memory, the others named in `left_out`
    levels        of the hybrid schedule (a shorter chain takes what it has), or "auto": for each chain the
                  number with the fewest multiply-adds on the critical path; 0 for one worker
    partition     of the network's layers over ranks, which are the workers then: each step is its owner's,
                  and the memory is that of the fullest rank
    vjps          whether elements are layers whose VJPs may be run in place of filled entries, by the hybrid
                  schedule; of a partition none is, since what travels is laid out as the scan has it
    progress      show bars on a terminal
    tell          called with a line on each schedule that is left out

    No product that does not fit is ever made. Raises PlanError for an argument of another kind or range, an
    unknown schedule, or where a schedule asked for, or every one, takes more than the memory.
    """
    names = _known(schedules)
    memory, workers = budget.memory, budget.workers
    if memory is not None:
        memory = as_integer("plan", "memory_limit", memory, 0, None, error=PlanError)
    if partition is not None:
        partition = as_partition("plan", partition)
        workers = partition.ranks if workers == 1 else workers
        partition.check(len(network["layers"]), workers, "layers")
    budget = replace(
        budget,
        batch_size=as_integer("plan", "batch_size", budget.batch_size, 1, error=PlanError),
        workers=as_integer("plan", "workers", workers, 1, error=PlanError),
        memory=memory,
    )
    asked = _checked_levels(levels, chains)
    sizes = _count_all(chains, names, asked, budget.workers, progress)
    budgets = [
        budget if partition is None else replace(budget, owners=chain.owners(partition)) for chain in chains
    ]
    made = {name: _make_schedules(name, sizes, asked, budgets) for name in names}
    if "hybrid" in names and vjps and partition is None:
        made["hybrid"] = list(map(_with_vjps, sizes, made["hybrid"], budgets))
    needed = {name: sum(map(Budget.bytes, budgets, sizes, made[name])) for name in names}
    left_out = {name: amount for name, amount in needed.items() if not budget.fits(amount)}
    reasons = {
        name: f"schedule {name} takes {amount} bytes for a batch of {budget.batch_size}, and the memory "
        f"limit is {budget.memory} bytes: use fewer --levels, a smaller --batch-size, or more memory"
        for name, amount in left_out.items()
    }
    if left_out and (schedules is not None or len(left_out) == len(names)):
        raise PlanError(reasons[min(left_out, key=lambda name: left_out[name])])
    if tell is not None:
        for reason in reasons.values():
            tell(reason)
    fitting = {name: made[name] for name in names if name not in left_out}
    products: dict[tuple[str, str], Product] = {}
    steps = sum(int(schedule.table[:, KIND].sum()) for every in fitting.values() for schedule in every)
    with tqdm(total=steps, desc="products", disable=not (progress and sys.stderr.isatty())) as bar:
        for chain, *own in zip(chains, *fitting.values(), strict=True):
            for _ in multiply_chain(chain, own, products):
                bar.update()
    planned = []
    for chain, counted, own_budget, *own in zip(chains, sizes, budgets, *fitting.values(), strict=True):
        assigned = [run_schedule(counted, schedule, own_budget)[0] for schedule in own]
        planned.append(ChainPlan(chain, dict(zip(fitting, assigned, strict=True)), products))
    return Plan(
        dict(network),
        fingerprint(network),
        budget.batch_size,
        budget.workers,
        budget.itemsize,
        tuple(planned),
        left_out,
        partition,
    )


def _known(schedules: Sequence[str] | None) -> tuple[str, ...]:
    takes = f"a list of names, as {['linear']}"
    given = (
        SCHEDULES if schedules is None else as_list("plan", "schedules", schedules, takes, error=PlanError)
    )
    unknown = [name for name in given if not is_one_of(name, SCHEDULES)]
    names = tuple(dict.fromkeys(given)) if not unknown else ()
    if not names:
        raise PlanError(f"schedules {unknown or 'none'} were asked for: there are {', '.join(SCHEDULES)}")
    return names


def _checked_levels(levels: int | str, chains: Sequence[Chain]) -> int | None:
    if is_one_of(levels, ["auto"]):
        return None
    most = max((up_sweep_levels(len(chain)) for chain in chains), default=0)
    try:
        return as_integer("plan", "levels", levels, 0, most, error=PlanError)
    except PlanError as refused:
        raise PlanError(
            f"levels {levels!r} were asked for: this network takes 0 to {most}, or 'auto'"
        ) from refused


def _count_all(
    chains: Sequence[Chain], names: Sequence[str], levels: int | None, workers: int, progress: bool
) -> list[ChainSizes]:
    """The sizes of each chain; chains of equal matrices, as equal residual blocks have, share theirs."""
    keys = [tuple(element.matrix for element in chain.elements) for chain in chains]
    different = dict(zip(keys, chains, strict=True))
    counted = {}
    for key, chain in different.items():
        schedules = (one for name in names for one in _candidates(name, len(chain), levels, workers))
        segments = np.vstack([one.out for one in schedules])
        counted[key] = ChainSizes(chain, segments, progress=progress)
    return [counted[key] for key in keys]


def _candidates(name: str, n: int, levels: int | None, workers: int) -> list[Schedule]:
    """The schedules that the one called `name` is chosen from."""
    if name != "hybrid":
        return [linear(n) if name == "linear" else blelloch(n)]
    if levels is not None:
        return [hybrid_of_at_most(n, levels)]
    return every_hybrid(n) if workers > 1 else [hybrid(n, 0)]


def _make_schedules(
    name: str, sizes: Sequence[ChainSizes], levels: int | None, budgets: Sequence[Budget]
) -> list[Schedule]:
    """The schedule called `name` of each chain, by its budget.

    A chosen one has the memory that is left once the schedules before it and the serial scans after it
    are in.
    """
    every = [
        _candidates(name, len(own.chain), levels, budget.workers)
        for own, budget in zip(sizes, budgets, strict=True)
    ]
    if all(len(candidates) == 1 for candidates in every):
        return [candidates[0] for candidates in every]
    made: list[Schedule] = []
    serial = [budget.bytes(own, linear(len(own.chain))) for own, budget in zip(sizes, budgets, strict=True)]
    spent = sum(serial)
    for own, candidates, budget, least in zip(sizes, every, budgets, serial, strict=True):
        spent -= least
        left = None if budget.memory is None else budget.memory - spent
        made.append(shortest(own, candidates, replace(budget, memory=left)))
        spent += budget.bytes(own, made[-1])
    return made


def _with_vjps(sizes: ChainSizes, schedule: Schedule, budget: Budget) -> Schedule:
    """The schedule with VJPs, or as it is where they take more memory and there is a limit."""
    crossed = with_vjps(sizes.chain, schedule)
    takes_more = budget.bytes(sizes, crossed) > budget.bytes(sizes, schedule)
    return schedule if budget.memory is not None and takes_more else crossed

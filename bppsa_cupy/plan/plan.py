"""A plan: all that is worked out about a network's scans before the first value is computed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_choice, as_integer, as_list, is_one_of
from bppsa_cupy.errors import PlanError, PlanMismatchError
from bppsa_cupy.plan.file import read_plan, write_plan
from bppsa_cupy.plan.partition import Partition, place
from bppsa_cupy.plan.product import Product
from bppsa_cupy.plan.schedule import (
    BEGIN,
    END,
    KIND,
    SCHEDULES,
    SPLIT,
    WORKER,
    Schedule,
    blelloch,
    every_hybrid,
    hybrid,
    linear,
    up_sweep_levels,
)
from bppsa_cupy.plan.sizes import Budget, Chain, ChainPlan, ChainSizes


@dataclass(frozen=True, eq=False)
class Plan:
    """The schedules and products of all chains of a network. Created by `net.plan`.

    Attributes
    ----------
    network : dict
        The result of `net.describe`, and the mode (training or evaluation) if the plan depends on it.
    fingerprint : str
        SHA-256 of `network`, which includes digests of the masks.
    batch_size : int
        The largest batch size that a scan with this plan accepts.
    workers : int
        The number of devices that the schedules assume to compute products at the same time.
    itemsize : int
        The bytes per value that memory estimates assume.
    chains : tuple of ChainPlan
        One chain per maximal run of layers that a scan can cover, in order. All chains have the same
        schedules.
    left_out : dict of str to int
        The schedules that exceed the memory limit, with the bytes that each needs.
    partition : Partition or None
        The layers of each rank. None for one device.

    Notes
    -----
    A plan that was saved and loaded equals the original.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(4, 3), bp.Tanh()], input_shape=(4,), device="host")
    >>> plan = net.plan(batch_size=8)
    >>> plan.batch_size, "blelloch" in plan.schedules
    (8, True)
    """

    network: Mapping[str, Any]
    fingerprint: str
    batch_size: int
    workers: int
    itemsize: int
    chains: tuple[ChainPlan, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    partition: Partition | None = None

    @property
    def schedules(self) -> tuple[str, ...]:
        """The names of the schedules in this plan."""
        return tuple(self.chains[0].schedules) if self.chains else ()

    def schedule(self, chain_index: int, name: str) -> Schedule:
        """Return the schedule called `name` of the chain at index `chain_index`.

        Raises PlanError if the plan does not contain the schedule. The message says how to build such a plan.
        """
        chain = self.chains[chain_index]
        if name in chain.schedules:
            return chain.schedules[name]
        cause = ""
        if name in self.left_out:
            cause = f" (it was left out: it needs {self.left_out[name]} bytes)"
        raise PlanError(
            f"the plan has no schedule {name!r}{cause}, only {', '.join(chain.schedules) or 'none'}: build "
            f"it again with --schedules {','.join((*chain.schedules, name))}, or net.plan(schedules=…)"
        )

    def check(self, geometry: Mapping[str, Any], target: str = "network") -> None:
        """Raise PlanMismatchError if the plan was made for another network or chain.

        `geometry` describes that network in the form of `Plan.network`. `target` is "network" or "chain", the
        word in the message. The message names the differences.
        """
        if self.fingerprint != fingerprint(geometry):
            different = differences(self.network, geometry) or ["its fingerprint does not match its geometry"]
            raise PlanMismatchError(
                f"the plan was made for another {target} ({'; '.join(different)}): build it again"
            )

    def critical_paths(self, batch_size: int, partition: Partition) -> dict[str, int]:
        """Return the multiply-adds on the critical path of each method over ranks, for `batch_size` samples.

        The entry "bp" counts one VJP after another. The other entries are the schedules of the plan, if its
        batch size suffices.
        """
        paths = {"bp": sum(vjp_multiply_adds(chain.chain, batch_size) for chain in self.chains)}
        for name in self.schedules if batch_size <= self.batch_size else ():
            paths[name] = 0
            for chain in self.chains:
                owners = chain.chain.owners(partition)
                budget = Budget(batch_size, self.itemsize, partition.ranks, owners=owners)
                schedule = replace(chain.schedules[name], vjps=())
                paths[name] += critical_path(chain, schedule, budget)
        return paths

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to an HDF5 file at `path`.

        An existing file is kept if writing fails. Raises PlanError if the file cannot be written.
        """
        write_plan(path, vars(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read and check a plan that `save` wrote to `path`.

        Raises PlanError if the file is missing, damaged or not a plan.
        """
        return cls(**read_plan(path))


# ---- building: count, choose, check against the memory limit, and only then multiply ----


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
) -> Plan:
    """Plan the scans of a network's chains.

    No product that exceeds the memory limit is made.

    Parameters
    ----------
    network : mapping
        The geometry and masks of the network, as JSON holds them.
    budget : Budget
        The resources.
    schedules : sequence of str or None
        The schedules to plan. By default all that fit into memory; `left_out` names the others.
    levels : int or "auto"
        The levels of the hybrid schedule, or fewer if a chain has fewer. "auto" gives each chain the number
        with the fewest multiply-adds on the critical path; 0 for one worker.
    partition : Partition or None
        The layers of each rank. The ranks are then the workers.
    vjps : bool
        Whether hybrid schedules may run the VJPs of layers instead of filling entries. Without effect with a
        partition, because messages have the layout of the scan.
    progress : bool
        Whether to show bars on a terminal.

    Raises
    ------
    PlanError
        If an argument is invalid, or a requested schedule, or every schedule, exceeds the memory limit.
    """
    names = _known(schedules)
    memory, workers = budget.memory, budget.workers
    if memory is not None:
        memory = as_integer("plan", "memory_limit", memory, 0, None, error=PlanError)
    if partition is not None:
        workers = partition.ranks if workers == 1 else workers
        partition.check(len(network["layers"]), workers, "layers")
    budget = replace(
        budget,
        batch_size=as_integer("plan", "batch_size", budget.batch_size, 1, error=PlanError),
        workers=as_integer("plan", "workers", workers, 1, error=PlanError),
        memory=memory,
    )
    asked = None if is_one_of(levels, ["auto"]) else as_integer("plan", "levels", levels, 0, error=PlanError)
    sizes = _count_all(chains, names, asked, budget.workers, progress)
    budgets = [
        budget if partition is None else replace(budget, owners=chain.owners(partition)) for chain in chains
    ]
    vjps = vjps and partition is None
    made: dict[str, list[Schedule]] = {name: [] for name in names}
    for name, scheduled in made.items():
        for counted, its in zip(sizes, budgets, strict=True):
            candidates = _candidates(name, len(counted.chain), asked, budget.workers)
            schedule = candidates[0] if len(candidates) == 1 else shortest(counted, candidates, its)
            scheduled.append(with_vjps(counted.chain, schedule) if vjps and name == "hybrid" else schedule)
    needed = {name: sum(map(Budget.bytes, budgets, sizes, made[name])) for name in names}
    left_out = {name: amount for name, amount in needed.items() if not budget.fits(amount)}
    if left_out and (schedules is not None or len(left_out) == len(names)):
        amount, name = min((amount, name) for name, amount in left_out.items())
        raise PlanError(
            f"schedule {name} needs {amount} bytes for a batch of {budget.batch_size}, but the memory limit "
            f"is {budget.memory} bytes: use fewer --levels, a smaller --batch-size, or more memory"
        )
    fitting = {name: made[name] for name in names if name not in left_out}
    products: dict[tuple[str, str], Product] = {}
    planned = []
    for chain, counted, its, *fitted in zip(chains, sizes, budgets, *fitting.values(), strict=True):
        assigned = [assign_workers(counted, schedule, its)[0] for schedule in fitted]
        planned.append(ChainPlan(chain, dict(zip(fitting, assigned, strict=True)), products))
    return Plan(
        dict(network), fingerprint(network), budget.batch_size, budget.workers, budget.itemsize,
        tuple(planned), left_out, partition,
    )  # fmt: skip


def _known(schedules: Sequence[str] | None) -> tuple[str, ...]:
    takes = "a list of names, such as ['linear']"
    requested = SCHEDULES if schedules is None else schedules
    names = tuple(dict.fromkeys(as_list("plan", "schedules", requested, takes, error=PlanError)))
    for name in names or ("",):
        as_choice("plan", "schedules", name, SCHEDULES, error=PlanError)
    return names


def _count_all(
    chains: Sequence[Chain], names: Sequence[str], levels: int | None, workers: int, progress: bool
) -> list[ChainSizes]:
    """The sizes of each chain; chains of equal matrices, as equal residual blocks have, share theirs."""
    keys = [tuple(element.matrix for element in chain.elements) for chain in chains]
    different = dict(zip(keys, chains, strict=True))
    counted = {}
    for key, chain in different.items():
        schedules = (
            schedule for name in names for schedule in _candidates(name, len(chain), levels, workers)
        )
        segments = np.vstack([schedule.out for schedule in schedules])
        counted[key] = ChainSizes(chain, segments, progress=progress)
    return [counted[key] for key in keys]


def _candidates(name: str, n: int, levels: int | None, workers: int) -> list[Schedule]:
    """The schedules that the one called `name` is chosen from."""
    if name != "hybrid":
        return [linear(n) if name == "linear" else blelloch(n)]
    if levels is not None:
        return [hybrid(n, min(levels, up_sweep_levels(n)))]
    return every_hybrid(n) if workers > 1 else [hybrid(n, 0)]


# ---- the geometry of a network, field by field ----


def fingerprint(geometry: Mapping[str, Any]) -> str:
    """SHA-256 of a network's geometry and masks, Sequential.describe()."""
    return hashlib.sha256(json.dumps(geometry, sort_keys=True).encode()).hexdigest()


def differences(planned: Mapping[str, Any], actual: Mapping[str, Any], *, holder: str = "plan") -> list[str]:
    """List the differences between the geometry in a plan (or another `holder`) and a network, one per field:
    "layers.0.kernel_size [5, 5] in the plan, [3, 3] in the network". After the first difference, input shapes
    of layers are left out, since they follow from it.

    Both are descriptions by `Sequential.describe`.
    """
    old, new = (dict(_fields(json.loads(json.dumps(geometry)))) for geometry in (planned, actual))
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
    return [
        f"{name} {_shown(old.get(name))} in the {holder}, {_shown(new.get(name))} in the network"
        for name in names
        if name == names[0] or not name.endswith(".input_shape")
    ]


def _fields(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of nested dicts and of lists of dicts, each with its path."""
    items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else ()
    if value and isinstance(value, list) and all(isinstance(item, dict) for item in value):
        items = enumerate(value)
    if not items:
        yield path, value
    for name, item in items:
        yield from _fields(item, f"{path}.{name}" if path else f"{name}")


def _shown(value: Any) -> Any:
    """A digest, as masks have one, by its first digits."""
    return f"{value[:8]}…" if isinstance(value, str) and len(value) == 64 else value


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

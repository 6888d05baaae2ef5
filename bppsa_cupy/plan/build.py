"""Building a plan: count, choose, check against the memory limit, and only then multiply."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.budget import Size, too_large
from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.chain_plan import ChainPlan, multiply_chain
from bppsa_cupy.plan.cost.model import CostModel, find_model
from bppsa_cupy.plan.cost.schedule_cost import schedule_cost
from bppsa_cupy.plan.plan import SCHEDULES, Plan
from bppsa_cupy.plan.product.symbolic import Product
from bppsa_cupy.plan.schedule import (
    KIND,
    Schedule,
    blelloch,
    every_hybrid,
    hybrid_of_at_most,
    linear,
    up_sweep_levels,
)
from bppsa_cupy.plan.search.search import Search
from bppsa_cupy.plan.search.segment_costs import MOST_ELEMENTS, SegmentCosts, searched_segments
from bppsa_cupy.plan.sizes.counted import ChainCounts


def build_plan(
    chains: Sequence[Chain],
    network: Mapping[str, Any],
    fingerprint: str,
    *,
    schedules: Sequence[str] | None = None,
    levels: int | str = "auto",
    workers: int | None = None,
    batch_size: int = 256,
    itemsize: int = 4,
    memory_limit: int | None = None,
    model: str | CostModel = "host",
    progress: bool = False,
    tell: Callable[[str], None] | None = None,
) -> Plan:
    """Plan the scans of a network's chains.

    network, fingerprint  its geometry as JSON holds it, and the SHA-256 of geometry and masks
    schedules     which ones; by default all that fit the memory limit, the others named in `left_out`
    levels        of the hybrid schedule (a shorter chain takes what it has), or "auto": the schedule is
                  computed (`compute_schedule`), and its segments may lie anywhere
    workers       how many share the steps; by default 1, as a device runs one step at a time
    batch_size, itemsize  samples the buffers hold, bytes of a value
    memory_limit  bytes for values, patterns and maps of one schedule; none by default
    model         the cost model for `levels="auto"` and for the steps' workers
    progress      show a bar on a terminal
    tell          called with a line on each schedule that is left out: where it passes the limit, what fits

    No product that does not fit is ever made. Raises PlanError for an argument of another kind or range, an
    unknown schedule, or where a schedule asked for, or every one, takes more than the limit.
    """
    names = _known(schedules)
    batch_size = _integer("batch_size", batch_size, 1)
    crew = _integer("workers", workers, 1) if workers is not None else 1
    if memory_limit is not None:
        memory_limit = _integer("memory_limit", memory_limit, 0)
    checked = _checked_levels(levels, chains)
    counts = [_count(chain, names, checked, progress) for chain in chains]
    size = Size(batch_size, itemsize, memory_limit)
    made = _make_schedules(counts, names, checked, crew, size, model)
    left_out = {}
    for name in names:
        needed = sum(size.bytes(c, s) for c, s in zip(counts, made[name], strict=True))
        if not size.fits(needed):
            left_out[name] = needed
    if left_out and (schedules is not None or len(left_out) == len(names)):
        name = min(left_out, key=lambda n: left_out[n])
        raise PlanError(too_large(name, counts, made[name], size))
    if tell is not None:
        for name in left_out:
            tell(too_large(name, counts, made[name], size))
    kept = [name for name in names if name not in left_out]
    products: dict[tuple[str, str], Product] = {}
    steps = sum(int(schedule.table[:, KIND].sum()) for name in kept for schedule in made[name])
    with tqdm(total=steps, desc="products", disable=not (progress and sys.stderr.isatty())) as bar:
        for position, chain in enumerate(chains):
            for _ in multiply_chain(chain, [made[name][position] for name in kept], products):
                bar.update()
    planned = []
    for position, (chain, counted) in enumerate(zip(chains, counts, strict=True)):
        own = {
            name: schedule_cost(
                counted,
                made[name][position],
                batch_size=batch_size,
                itemsize=itemsize,
                workers=crew,
                model=model,
            ).schedule
            for name in kept
        }
        planned.append(ChainPlan(chain, own, products))
    return Plan(dict(network), fingerprint, batch_size, crew, itemsize, tuple(planned), left_out)


def compute_schedule(
    counts: ChainCounts,
    *,
    workers: int,
    batch_size: int,
    itemsize: int,
    memory_limit: int | None = None,
    model: str | CostModel = "host",
) -> Schedule:
    """The schedule of the class of `plan.search` with the least predicted time, called "hybrid".

    Of a chain of more than MOST_ELEMENTS, the best hybrid(n, levels).

    counts        of a chain, with the segments of `searched_segments`
    memory_limit  bytes for values, patterns and maps; none by default

    The serial scan where nothing fits the limit.
    """
    size = Size(batch_size, itemsize, memory_limit)
    machine = find_model(model)
    if len(counts.chain) > MOST_ELEMENTS:
        return _best_hybrid(counts, size, workers, machine)
    costs = SegmentCosts.of(counts, batch_size, itemsize, machine)
    fits = None if memory_limit is None else lambda schedule: size.fits(size.bytes(counts, schedule))
    return Search(costs, fits).best(workers).schedule


def _best_hybrid(counts: ChainCounts, size: Size, workers: int, model: CostModel) -> Schedule:
    """The hybrid schedule with the least predicted time that fits, the serial scan where none does."""
    schedules = every_hybrid(len(counts.chain))
    seconds = [
        schedule_cost(
            counts,
            schedule,
            batch_size=size.batch_size,
            itemsize=size.itemsize,
            workers=workers,
            model=model,
        ).seconds
        for schedule in schedules
    ]
    quickest = sorted(schedules, key=lambda schedule: seconds[schedule.levels or 0])
    fitting = (schedule for schedule in quickest if size.fits(size.bytes(counts, schedule)))
    return next(fitting, schedules[0])


def _integer(name: str, value: int, least: int) -> int:
    """An argument as Python's integer; NumPy's are taken, bool is not."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise PlanError(f"{name}={value!r} was asked for: it must be an integer and at least {least}")
    return int(value)


def _known(schedules: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(schedules, str) or not isinstance(schedules, (Iterable, type(None))):
        raise PlanError(f"schedules={schedules!r} were asked for: give a list of names, as {['linear']}")
    names = tuple(SCHEDULES if schedules is None else dict.fromkeys(schedules))
    unknown = [name for name in names if name not in SCHEDULES]
    if unknown or not names:
        raise PlanError(f"schedules {unknown or 'none'} were asked for: there are {', '.join(SCHEDULES)}")
    return names


def _checked_levels(levels: int | str, chains: Sequence[Chain]) -> int | None:
    if levels == "auto":
        return None
    most = max((up_sweep_levels(len(chain)) for chain in chains), default=0)
    if isinstance(levels, bool) or not isinstance(levels, (int, np.integer)) or not 0 <= levels <= most:
        raise PlanError(f"levels {levels!r} were asked for: this network takes 0 to {most}, or 'auto'")
    return int(levels)


def _count(chain: Chain, names: Sequence[str], levels: int | None, progress: bool) -> ChainCounts:
    """Count what the named schedules compute, or the search may choose from."""
    n = len(chain)
    if "hybrid" in names and levels is None and n > MOST_ELEMENTS:
        return ChainCounts.of(chain, every_hybrid(n), progress=progress)
    if "hybrid" in names and levels is None:
        return ChainCounts.of_segments(chain, searched_segments(chain), progress=progress)
    made = {"linear": linear(n), "blelloch": blelloch(n), "hybrid": hybrid_of_at_most(n, levels or 0)}
    return ChainCounts.of(chain, [made[name] for name in names], progress=progress)


def _make_schedules(
    counts: Sequence[ChainCounts],
    names: Sequence[str],
    levels: int | None,
    workers: int,
    size: Size,
    model: str | CostModel,
) -> dict[str, list[Schedule]]:
    """The named schedules of every chain."""
    lengths = [len(counted.chain) for counted in counts]
    made: dict[str, list[Schedule]] = {}
    if "linear" in names:
        made["linear"] = [linear(n) for n in lengths]
    if "blelloch" in names:
        made["blelloch"] = [blelloch(n) for n in lengths]
    if "hybrid" in names and levels is not None:
        made["hybrid"] = [hybrid_of_at_most(n, levels) for n in lengths]
    elif "hybrid" in names:
        made["hybrid"] = []
        # What is left of the limit for a chain once those before it and the serial scans after it are in.
        serial = [size.bytes(counted, linear(n)) for counted, n in zip(counts, lengths, strict=True)]
        spent = sum(serial)
        for counted, own in zip(counts, serial, strict=True):
            spent -= own
            best = compute_schedule(
                counted,
                workers=workers,
                batch_size=size.batch_size,
                itemsize=size.itemsize,
                memory_limit=None if size.limit is None else size.limit - spent,
                model=model,
            )
            made["hybrid"].append(best)
            spent += size.bytes(counted, best)
    return {name: made[name] for name in names}

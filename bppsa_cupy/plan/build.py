"""Building a plan: count, choose, check against the memory limit, and only then multiply."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tqdm import tqdm

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.chain_plan import ChainPlan, multiply_chain
from bppsa_cupy.plan.cost import schedule_cost
from bppsa_cupy.plan.cost_model import CostModel
from bppsa_cupy.plan.counting import ChainCounts
from bppsa_cupy.plan.memory import memory_plan
from bppsa_cupy.plan.plan import SCHEDULES, Plan
from bppsa_cupy.plan.schedule import Schedule, blelloch, hybrid, linear, up_sweep_levels
from bppsa_cupy.plan.symbolic import Product


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
) -> Plan:
    """Plan the scans of a network's chains.

    network, fingerprint  its geometry as JSON holds it, and the SHA-256 of geometry and masks
    schedules     which ones; by default all that fit the memory limit, the others named in `left_out`
    levels        of the hybrid schedule (a shorter chain takes what it has), or "auto" (`choose_levels`)
    workers       how many steps run at once; 1 by default
    batch_size, itemsize  samples the buffers hold, bytes of a value
    memory_limit  bytes for values, patterns and maps of one schedule; none by default
    model         the cost model for `levels="auto"` and for the steps' workers
    progress      show a bar on a terminal

    No product that does not fit is ever made. Raises PlanError for an unknown schedule or number of
    levels, or where a schedule asked for, or every one, takes more than the limit.
    """
    names = _known(schedules)
    if batch_size < 1:
        raise PlanError(f"a batch size of {batch_size} was asked for: it must be at least 1")
    crew = workers if workers is not None else 1
    counts = [_count(chain) for chain in chains]
    size = _Size(batch_size, itemsize, memory_limit)
    made = _make_schedules(counts, names, _checked_levels(levels, chains), crew, size, model)
    left_out = {}
    for name in names:
        needed = sum(size.bytes(c, s) for c, s in zip(counts, made[name], strict=True))
        if not size.fits(needed):
            left_out[name] = needed
    if left_out and (schedules is not None or len(left_out) == len(names)):
        name = min(left_out, key=lambda n: left_out[n])
        raise PlanError(_too_large(name, counts, made[name], left_out[name], size))
    kept = [name for name in names if name not in left_out]
    products: dict[tuple[str, str], Product] = {}
    steps = sum(s.kind == "mm" for name in kept for schedule in made[name] for s in schedule.steps)
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


def choose_levels(
    counts: ChainCounts,
    *,
    workers: int,
    batch_size: int,
    itemsize: int,
    memory_limit: int | None = None,
    model: str | CostModel = "host",
) -> int:
    """The number of up-sweep levels of the hybrid schedule with the least predicted time that fits.

    counts  of a chain, with every segment of every hybrid schedule

    Ties go to fewer levels; 0, the serial scan, where none fits.
    """
    size = _Size(batch_size, itemsize, memory_limit)
    best, least = 0, float("inf")
    for levels in range(up_sweep_levels(len(counts.chain)) + 1):
        schedule = hybrid(len(counts.chain), levels)
        if not size.fits(size.bytes(counts, schedule)):
            continue
        cost = schedule_cost(
            counts, schedule, batch_size=batch_size, itemsize=itemsize, workers=workers, model=model
        )
        if cost.seconds < least:
            best, least = levels, cost.seconds
    return best


class _Size:
    """What schedules take for a batch, and whether it is too much."""

    def __init__(self, batch_size: int, itemsize: int, limit: int | None) -> None:
        self.batch_size, self.itemsize, self.limit = batch_size, itemsize, limit

    def bytes(self, counts: ChainCounts, schedule: Schedule) -> int:
        """Bytes of values, patterns and maps."""
        return self.by_level(counts, schedule)[-1]

    def by_level(self, counts: ChainCounts, schedule: Schedule) -> list[int]:
        """The bytes reached after the inputs are in and after each level."""
        tops = memory_plan(counts, schedule, self.batch_size, self.itemsize).tops
        indices = [0, *counts.index_bytes(schedule)]
        return [top * self.itemsize + held for top, held in zip(tops, indices, strict=True)]

    def fits(self, needed: int) -> bool:
        return self.limit is None or needed <= self.limit


def _known(schedules: Sequence[str] | None) -> tuple[str, ...]:
    names = tuple(SCHEDULES if schedules is None else dict.fromkeys(schedules))
    unknown = [name for name in names if name not in SCHEDULES]
    if unknown or not names:
        raise PlanError(f"schedules {unknown or 'none'} were asked for: there are {', '.join(SCHEDULES)}")
    return names


def _checked_levels(levels: int | str, chains: Sequence[Chain]) -> int | None:
    if levels == "auto":
        return None
    most = max((up_sweep_levels(len(chain)) for chain in chains), default=0)
    if not isinstance(levels, int) or not 0 <= levels <= most:
        raise PlanError(f"levels {levels!r} were asked for: this network takes 0 to {most}, or 'auto'")
    return levels


def _count(chain: Chain) -> ChainCounts:
    n = len(chain)
    return ChainCounts.of(chain, [hybrid(n, levels) for levels in range(up_sweep_levels(n) + 1)])


def _make_schedules(
    counts: Sequence[ChainCounts],
    names: Sequence[str],
    levels: int | None,
    workers: int,
    size: _Size,
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
        made["hybrid"] = [hybrid(n, min(levels, up_sweep_levels(n))) for n in lengths]
    elif "hybrid" in names:
        made["hybrid"] = []
        # What is left of the limit for a chain once those before it and the serial scans after it are in.
        serial = [size.bytes(counted, linear(n)) for counted, n in zip(counts, lengths, strict=True)]
        spent = sum(serial)
        for counted, n, own in zip(counts, lengths, serial, strict=True):
            spent -= own
            best = choose_levels(
                counted,
                workers=workers,
                batch_size=size.batch_size,
                itemsize=size.itemsize,
                memory_limit=None if size.limit is None else size.limit - spent,
                model=model,
            )
            made["hybrid"].append(hybrid(n, best))
            spent += size.bytes(counted, made["hybrid"][-1])
    return {name: made[name] for name in names}


def _too_large(
    name: str, counts: Sequence[ChainCounts], schedules: Sequence[Schedule], needed: int, size: _Size
) -> str:
    """What to say of a schedule over the limit: where it passes it, and what would fit."""
    assert size.limit is not None
    spent, level = 0, -1
    for counted, schedule in zip(counts, schedules, strict=True):
        reached = size.by_level(counted, schedule)
        level = next((at for at, held in enumerate(reached, -1) if spent + held > size.limit), -1)
        spent += reached[-1]
        if spent > size.limit:
            break
    place = "its inputs pass" if level < 0 else f"level {level} passes"
    fixes = []
    most = max(schedule_levels(schedule) for schedule in schedules)
    for levels in reversed(range(most)):
        shorter = [hybrid(len(c.chain), min(levels, up_sweep_levels(len(c.chain)))) for c in counts]
        if size.fits(sum(size.bytes(c, s) for c, s in zip(counts, shorter, strict=True))):
            fixes.append(f"--schedules hybrid --levels {levels}")
            break
    batch = _largest_batch(counts, schedules, size)
    if batch:
        fixes.append(f"--batch-size {batch}")
    return (
        f"schedule {name} takes {needed} bytes for a batch of {size.batch_size}, the memory limit is "
        f"{size.limit} bytes ({place} it): "
        + (" or ".join(fixes) + " would fit" if fixes else "no number of levels or batch size would fit")
    )


def schedule_levels(schedule: Schedule) -> int:
    """The up-sweep levels of any schedule."""
    if schedule.levels is not None:
        return schedule.levels
    return up_sweep_levels(schedule.n) if schedule.name == "blelloch" else 0


def _largest_batch(counts: Sequence[ChainCounts], schedules: Sequence[Schedule], size: _Size) -> int:
    """The largest batch below the one asked for that fits; 0 where none does."""
    fits, over = 0, size.batch_size
    while over - fits > 1:
        middle = (fits + over) // 2
        smaller = _Size(middle, size.itemsize, size.limit)
        needed = sum(smaller.bytes(c, s) for c, s in zip(counts, schedules, strict=True))
        fits, over = (middle, over) if smaller.fits(needed) else (fits, middle)
    return fits

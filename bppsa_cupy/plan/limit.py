"""What schedules take for a batch, and what to say of one that is too large."""

from __future__ import annotations

from collections.abc import Sequence

from bppsa_cupy.plan.memory import memory_plan
from bppsa_cupy.plan.schedule import Schedule, hybrid, up_sweep_levels
from bppsa_cupy.plan.sizes import ChainSizes


class Size:
    """What schedules take for a batch, and whether it is too much."""

    def __init__(self, batch_size: int, itemsize: int, limit: int | None) -> None:
        self.batch_size, self.itemsize, self.limit = batch_size, itemsize, limit

    def bytes(self, counts: ChainSizes, schedule: Schedule) -> int:
        """Bytes of values, patterns and maps."""
        return self.by_level(counts, schedule)[-1]

    def by_level(self, counts: ChainSizes, schedule: Schedule) -> list[int]:
        """The bytes reached after the inputs are in and after each level."""
        tops = memory_plan(counts, schedule, self.batch_size, self.itemsize).tops
        indices = [0, *counts.index_bytes(schedule)]
        return [top * self.itemsize + held for top, held in zip(tops, indices, strict=True)]

    def fits(self, needed: int) -> bool:
        return self.limit is None or needed <= self.limit


def too_large(
    name: str, counts: Sequence[ChainSizes], schedules: Sequence[Schedule], needed: int, size: Size
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


def _largest_batch(counts: Sequence[ChainSizes], schedules: Sequence[Schedule], size: Size) -> int:
    """The largest batch below the one asked for that fits; 0 where none does."""
    fits, over = 0, size.batch_size
    while over - fits > 1:
        middle = (fits + over) // 2
        smaller = Size(middle, size.itemsize, size.limit)
        needed = sum(smaller.bytes(c, s) for c, s in zip(counts, schedules, strict=True))
        fits, over = (middle, over) if smaller.fits(needed) else (fits, middle)
    return fits

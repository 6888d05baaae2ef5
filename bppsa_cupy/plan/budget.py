"""What schedules take for a batch, and what to say of one that is too large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bppsa_cupy.plan.memory import needed_bytes
from bppsa_cupy.plan.schedule import Schedule, hybrid_of_at_most, up_sweep_levels, with_input_gradient
from bppsa_cupy.plan.sizes.chain_sizes import ChainSizes


@dataclass(frozen=True)
class Size:
    """What scans take for a batch, and whether it is too much.

    limit           bytes there are; None for any number
    input_gradient  whether the gradient by the chain's input is computed too
    indices         whether patterns and maps count, which a host has anyway
    affine          whether there are injected vectors
    """

    batch_size: int
    itemsize: int
    limit: int | None = None
    input_gradient: bool = True
    indices: bool = True
    affine: bool = False

    def bytes(self, counts: ChainSizes, schedule: Schedule) -> int:
        """Bytes of values, patterns and maps."""
        return self.by_level(counts, schedule)[-1]

    def by_level(self, counts: ChainSizes, schedule: Schedule) -> list[int]:
        """The bytes reached after the inputs are in and after each level."""
        whole = with_input_gradient(schedule) if self.input_gradient else schedule
        return needed_bytes(
            counts, whole, self.batch_size, self.itemsize, indices=self.indices, affine=self.affine
        )

    def fits(self, needed: int) -> bool:
        return self.limit is None or needed <= self.limit


def too_large(
    name: str,
    counts: Sequence[ChainSizes],
    schedules: Sequence[Schedule],
    size: Size,
    limit: str = "the memory limit is {} bytes",
) -> str:
    """What to say of a schedule over the limit: where it passes it, and what would fit.

    counts  of each chain; those of a plan tell of its own segments alone
    limit   how to call it
    """
    assert size.limit is not None
    needed = spent = 0
    level = None
    for counted, schedule in zip(counts, schedules, strict=True):
        reached = size.by_level(counted, schedule)
        needed += reached[-1]
        if level is None:
            level = next((at for at, held in enumerate(reached, -1) if spent + held > size.limit), None)
        spent += reached[-1]
    place = "its inputs pass" if level is None or level < 0 else f"level {level} passes"
    fixes = []
    most = max(schedule_levels(schedule) for schedule in schedules)
    for levels in reversed(range(most)):
        shorter = [hybrid_of_at_most(len(c.chain), levels) for c in counts]
        if size.fits(sum(size.bytes(c, s) for c, s in zip(counts, shorter, strict=True))):
            fixes.append(f"--schedules hybrid --levels {levels}")
            break
    batch = _largest_batch(counts, schedules, size)
    if batch:
        fixes.append(f"--batch-size {batch}")
    return (
        f"schedule {name} takes {needed} bytes for a batch of {size.batch_size}, {limit.format(size.limit)} "
        f"({place} it): "
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
        smaller = replace(size, batch_size=middle)
        needed = sum(smaller.bytes(c, s) for c, s in zip(counts, schedules, strict=True))
        fits, over = (middle, over) if smaller.fits(needed) else (fits, middle)
    return fits

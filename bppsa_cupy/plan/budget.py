"""What there is for scans, and what to say of schedules that take more memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bppsa_cupy.plan.algorithms import hybrid_of_at_most, with_input_gradient
from bppsa_cupy.plan.memory import level_tops, rank_memory_plans, vector_sizes
from bppsa_cupy.plan.partition import place
from bppsa_cupy.plan.schedule import Schedule
from bppsa_cupy.plan.sizes import ChainSizes


@dataclass(frozen=True)
class Budget:
    """What scans are run for, on and with.

    batch_size      samples the buffers hold
    itemsize        bytes of a value
    workers         how many share the steps
    memory          bytes for values, patterns and maps of one schedule; None for any number
    input_gradient  whether the gradient by the chain's input is computed too
    indices         whether patterns and maps take memory, which a host holds anyway
    affine          whether there are injected vectors
    owners          the rank of each element a_1, …, a_n, of `workers` ranks: each step runs where its last
                    element is, and bytes are those of the rank that takes most; None where workers share all
    """

    batch_size: int
    itemsize: int
    workers: int = 1
    memory: int | None = None
    input_gradient: bool = True
    indices: bool = True
    affine: bool = False
    owners: tuple[int, ...] | None = None

    def bytes(self, sizes: ChainSizes, schedule: Schedule) -> int:
        """Bytes that `schedule` takes."""
        return (
            self.bytes_by_level(sizes, schedule)[-1]
            if self.owners is None
            else max(self.bytes_by_rank(sizes, schedule))
        )

    def bytes_by_rank(self, sizes: ChainSizes, schedule: Schedule) -> list[int]:
        """Bytes that each of the ranks takes: the values of `rank_memory_plan`, and with `indices` the
        patterns and maps of its own steps."""
        assert self.owners is not None
        if self.input_gradient:
            schedule = with_input_gradient(schedule)
        placement = place(schedule, self.owners, self.workers)
        layouts = rank_memory_plans(sizes, placement, self.batch_size, self.itemsize)
        taken = [layout.total_bytes for layout in layouts]
        for rank in range(self.workers) if self.indices else ():
            own = replace(schedule, table=schedule.table[placement.steps_of(rank)])
            taken[rank] += max(sizes.index_bytes(own), default=0)
        return taken

    def bytes_by_level(self, sizes: ChainSizes, schedule: Schedule) -> list[int]:
        """Bytes that `schedule` has taken when its inputs are in and after each level, (depth + 1,).

        They are the values of `memory_plan`, and with `indices` all patterns and maps the levels so far
        have read, with `affine` the injected vectors.
        """
        if self.input_gradient:
            schedule = with_input_gradient(schedule)
        tops = level_tops(sizes, schedule, self.batch_size)
        injected = sum(vector_sizes(sizes, schedule, self.batch_size).values()) if self.affine else 0
        held = [0, *sizes.index_bytes(schedule)] if self.indices else [0] * len(tops)
        return [(top + injected) * self.itemsize + index for top, index in zip(tops, held, strict=True)]

    def bytes_of_all(self, sizes: Sequence[ChainSizes], schedules: Sequence[Schedule]) -> int:
        """Bytes that a schedule for each chain takes."""
        return sum(map(self.bytes, sizes, schedules))

    def fits(self, needed: int) -> bool:
        """Whether there is as much memory."""
        return self.memory is None or needed <= self.memory


def too_large(
    name: str,
    sizes: Sequence[ChainSizes],
    schedules: Sequence[Schedule],
    budget: Budget,
    available: str = "the memory limit is {} bytes",
) -> str:
    """What to say of a schedule over the budget: where it passes it, and what would fit.

    sizes      of each chain; those of a plan tell of its own segments alone
    available  how to call the memory there is
    """
    assert budget.memory is not None
    needed, level = 0, None
    for own, schedule in zip(sizes, schedules, strict=True):
        reached = [needed + held for held in budget.bytes_by_level(own, schedule)]
        if level is None:
            level = next((at for at, held in enumerate(reached, -1) if not budget.fits(held)), None)
        needed = reached[-1]
    passes = "its inputs pass" if level is None or level < 0 else f"level {level} passes"
    fixes = []
    for levels in reversed(range(max(schedule.up_sweep for schedule in schedules))):
        shorter = [hybrid_of_at_most(schedule.n, levels) for schedule in schedules]
        if budget.fits(budget.bytes_of_all(sizes, shorter)):
            fixes.append(f"--schedules hybrid --levels {levels}")
            break
    if batch := _largest_batch(sizes, schedules, budget):
        fixes.append(f"--batch-size {batch}")
    return (
        f"schedule {name} takes {needed} bytes for a batch of {budget.batch_size}, "
        f"{available.format(budget.memory)} ({passes} it): "
        + (" or ".join(fixes) + " would fit" if fixes else "no number of levels or batch size would fit")
    )


def _largest_batch(sizes: Sequence[ChainSizes], schedules: Sequence[Schedule], budget: Budget) -> int:
    """The largest batch below the one asked for that fits; 0 where none does."""
    fits, over = 0, budget.batch_size
    while over - fits > 1:
        middle = (fits + over) // 2
        needed = replace(budget, batch_size=middle).bytes_of_all(sizes, schedules)
        fits, over = (middle, over) if budget.fits(needed) else (fits, middle)
    return fits

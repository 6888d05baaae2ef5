"""The memory there is for a scan, and how much of it a schedule takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bppsa_cupy.plan.algorithms import with_input_gradient
from bppsa_cupy.plan.memory import memory_plan, rank_memory_plan, vector_sizes
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
        """Bytes that `schedule` takes: values, with `indices` patterns and maps, with `affine` vectors."""
        if self.input_gradient:
            schedule = with_input_gradient(schedule)
        if self.owners is not None:
            placement = place(schedule, self.owners, self.workers)
            taken = []
            for rank in range(self.workers):
                part = replace(schedule, table=schedule.table[placement.steps_of(rank)])
                layout = rank_memory_plan(sizes, placement, rank, self.batch_size, self.itemsize)
                taken.append(layout.total_bytes + (sizes.index_bytes(part) if self.indices else 0))
            return max(taken)
        total = memory_plan(sizes, schedule, self.batch_size, self.itemsize).total_bytes
        if self.affine:
            total += sum(vector_sizes(sizes, schedule, self.batch_size).values()) * self.itemsize
        return total + (sizes.index_bytes(schedule) if self.indices else 0)

    def fits(self, needed: int) -> bool:
        """Whether there is as much memory."""
        return self.memory is None or needed <= self.memory

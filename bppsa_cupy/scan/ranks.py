"""One rank's part of a scan: its own steps, and the messages between them and other ranks'."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.plan import (
    ChainPlan,
    MemoryPlan,
    Message,
    RankSchedule,
    Schedule,
    Segment,
    Step,
    place,
    rank_memory_plan,
)
from bppsa_cupy.scan.launches import IndexMaps
from bppsa_cupy.scan.numeric import NumericScan

#: The first tag of a scan's messages; those below are left to whoever runs it.
FIRST_TAG = 2


class RankScan(NumericScan):
    """The part of one rank in a schedule over a planned chain, for batches up to `capacity`.

    Every rank makes this scan and calls `run_batch` equally often:

    1. Write the values of the elements in `elements_read` into `element(k, batch)`. This rank owns them all.
    2. If `has_gradient`, write the gradient into `vector(1, batch)`.
    3. Call `run_batch(batch)`.
    4. Read `vector(k, batch)` for every owned k. The owner of a_n also reads n + 1, the input gradient.

    Parameters
    ----------
    group : Group
        The ranks.
    owners : array of int, shape (n,)
        The rank of a_1, …, a_n. Each rank owns contiguous elements.

    Raises
    ------
    PlanError
        If the owners do not cover the chain.

    Notes
    -----
    The bits equal those of `NumericScan` with the same schedule. Receives are posted before the first step, a
    segment is sent once it is computed, and a step waits only for the segments that it reads.
    """

    def __init__(
        self,
        group: Any,
        owners: Sequence[int] | np.ndarray,
        device: Device,
        dtype: np.dtype,
        chain_plan: ChainPlan,
        schedule: Schedule,
        capacity: int,
        maps: IndexMaps | None = None,
    ) -> None:
        self.group = group
        self.placement: RankSchedule = place(schedule, owners, group.size)
        super().__init__(device, dtype, chain_plan, self.placement.schedule, capacity, maps)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """This rank's steps, in order."""
        return tuple(map(self.schedule.step, self.placement.steps_of(self.group.rank)))

    @cached_property
    def elements_read(self) -> frozenset[int]:
        """The own elements whose values this rank's steps read, or others', which are sent them."""
        operands = [segment for step in self.steps for segment in (step.left, step.right)]
        operands += [message.segment for message in self._messages if message.source == self.group.rank]
        owners, rank = self.placement.owners, self.group.rank
        return frozenset(
            begin for begin, end in operands if begin >= 1 and end == begin + 1 and owners[begin] == rank
        )

    @property
    def owned(self) -> list[int]:
        """The elements of this rank, from 1 on."""
        return [k for k in range(1, self.schedule.n + 1) if self.placement.owners[k] == self.group.rank]

    @property
    def has_gradient(self) -> bool:
        """Whether v(1) is written on this rank: it owns a_1."""
        return bool(self.placement.owners[0] == self.group.rank)

    def _parts(self, batch: int) -> list[Callable[[], None] | int]:
        """This rank's segments, with the other ranks, which run theirs too; none is due by a VJP."""
        return [self._program(batch)]

    # ---- memory ----

    def _memory_plan(self, batch: int) -> MemoryPlan:
        return rank_memory_plan(self.chain_plan, self.placement, self.group.rank, batch, self.dtype.itemsize)

    # ---- messages ----

    @cached_property
    def _messages(self) -> list[Message]:
        """The messages of the scan. The tag of a message follows from its position."""
        return self.placement.messages()

    def _program(self, batch: int) -> Callable[[], None]:
        """A run for a batch: launches bound between messages."""
        rank, group = self.group.rank, self.group
        posts: list[tuple[Segment, Array, int, int]] = []
        waiting: deque[tuple[Segment, Array, int, int]] = deque()
        for tag, (_, segment, source, target) in enumerate(self._messages, FIRST_TAG):
            if rank in (source, target):
                values = self._matrix(segment, batch).values if segment[0] else self.vector(segment[1], batch)
                (waiting if source == rank else posts).append((segment, values, source + target - rank, tag))
        received = {segment for segment, *_ in posts}
        there = set(self.memory.offsets) - received - {step.out for step in self.steps}
        launches: list[Launch] = []
        # A segment is awaited, a list of messages is sent, a launch is called.
        program: list[Any] = []

        def bind_launches() -> None:
            if launches:
                program.append(self.device.sequence(launches.copy()))
                launches.clear()

        def send_what_is_there() -> None:
            leaving = []
            while waiting and waiting[0][0] in there:
                leaving.append(waiting.popleft()[1:])
            if leaving:
                bind_launches()
                program.append(leaving)

        send_what_is_there()
        for step in self.steps:
            if step.left in received and step.left not in there:
                bind_launches()
                program.append(step.left)
                there.add(step.left)
            launches += self._bind_step(step, batch)
            there.add(step.out)
            send_what_is_there()
        bind_launches()

        def run_program() -> None:
            under_way = {segment: group.post(*message) for segment, *message in posts}
            sending: list[Any] = []
            for item in program:
                if isinstance(item, tuple):
                    under_way.pop(item).wait()
                elif isinstance(item, list):
                    sending += [group.isend(*message) for message in item]
                else:
                    item()
                    group.progress()
            for handle in (*under_way.values(), *sending):
                handle.wait()

        return run_program

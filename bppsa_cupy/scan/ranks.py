"""The part of one rank in a scan: its steps, and the messages between its steps and those of other ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from bppsa_cupy.devices import Device, Launch
from bppsa_cupy.plan import ChainPlan, MemoryPlan, Message, Schedule, place, rank_memory_plan
from bppsa_cupy.scan.launches import IndexMaps
from bppsa_cupy.scan.numeric import NumericScan

#: The first tag of the messages of a scan. Its callers use the tags below.
FIRST_TAG = 2


class RankScan(NumericScan):
    """The part of one rank in a schedule over a planned chain, for batches up to `capacity`.

    Every rank makes this scan and calls `run_batch` equally often:

    1. Write the values of the elements in `elements_read` into `element(k, batch)`. This rank owns them all.
    2. If this rank owns a_1, write the gradient into `vector(1, batch)`.
    3. Call `run_batch(batch)`.
    4. Read `vector(k, batch)` for every owned k. The owner of a_n also reads n + 1, the input gradient.

    Parameters
    ----------
    group : Group
        The ranks.
    owners : array of int, shape (n,)
        The rank of a_1, …, a_n. Each rank owns contiguous elements.

    Notes
    -----
    The bits equal those of `NumericScan` with the same schedule. Before the steps of a level, a rank sends
    and receives the messages up to that level in the order that all ranks share, so no rank waits for ever.
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
        self.group, self.placement = group, place(schedule, owners, group.size)
        steps = self.placement.schedule.steps
        self._steps = [steps[position] for position in self.placement.steps_of(group.rank)]
        self._messages = [
            (tag, message)
            for tag, message in enumerate(self.placement.messages(), FIRST_TAG)
            if group.rank in (message.source, message.target)
        ]
        super().__init__(device, dtype, chain_plan, schedule, capacity, maps)

    @cached_property
    def owned(self) -> list[int]:
        return (np.flatnonzero(self.placement.owners[1:] == self.group.rank) + 1).tolist()

    @cached_property
    def elements_read(self) -> frozenset[int]:
        """The elements of this rank whose values its steps read, or other ranks receive."""
        operands = [segment for step in self._steps for segment in (step.left, step.right)]
        operands += [message.segment for _, message in self._messages]
        owned = set(self.owned)
        return frozenset(begin for begin, end in operands if begin in owned and end == begin + 1)

    def _memory_plan(self, batch: int) -> MemoryPlan:
        return rank_memory_plan(self.chain_plan, self.placement, self.group.rank, batch, self.dtype.itemsize)

    def _parts(self, batch: int) -> list[Callable[[], Any] | int]:
        """Launches between messages."""
        parts: list[Callable[[], Any] | int] = []
        launches: list[Launch] = []
        waiting = deque(self._messages)

        def bind_launches() -> None:
            if launches:
                parts.extend((self.device.sequence(launches.copy()), self.group.progress))
                launches.clear()

        for step in self._steps:
            if waiting and waiting[0][1].level <= step.level:
                bind_launches()
            while waiting and waiting[0][1].level <= step.level:
                parts.append(self._bind_message(*waiting.popleft(), batch))
            launches += self._bind_step(step, batch)
        bind_launches()
        parts += [self._bind_message(tag, message, batch) for tag, message in waiting]
        return [*parts, self.group.finish]

    def _bind_message(self, tag: int, message: Message, batch: int) -> Callable[[], Any]:
        """A call that sends or receives a message."""
        begin, end = message.segment
        values = self._matrix(message.segment, batch).values if begin else self.vector(end, batch)
        if message.source == self.group.rank:
            return lambda: self.group.isend(values, message.target, tag)
        return lambda: self.group.receive(values, message.source, tag)

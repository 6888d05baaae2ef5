"""One rank's part of a scan: its own steps, and the messages between them and other ranks'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.plan import (
    ChainPlan,
    MemoryPlan,
    RankSchedule,
    Schedule,
    Segment,
    Step,
    place,
    rank_memory_plan,
)
from bppsa_cupy.scan.maps import IndexMaps
from bppsa_cupy.scan.numeric import NumericScan

#: The first tag of a scan's messages; those below are left to whoever runs it.
FIRST_TAG = 2


class Message(Protocol):
    """A message under way."""

    def wait(self) -> None:
        """Return when its array may be used again."""


@runtime_checkable
class Ranks(Protocol):
    """What a scan needs of the ranks: `distributed.Group` is one."""

    rank: int
    size: int

    def isend(self, array: Array, target: int, tag: int = 0) -> Message: ...
    def post(self, array: Array, source: int, tag: int = 0) -> Message: ...
    def progress(self) -> None: ...
    def agree(self, **values: object) -> None: ...


class RankScan(NumericScan):
    """One rank's part of one schedule over one planned chain, for batches up to `capacity`.

    Use, on every rank: write the values of the elements in `elements_read`, all of them this rank's own,
    into `element(k, batch)`; where `has_gradient`, the gradient into `vector(1, batch)`; call `run(batch)`;
    read `vector(k, batch)` for every own k, and for n + 1, the input gradient, on the owner of a_n.

    group   the ranks; every one of them makes this scan, and runs it as often
    owners  (n,) the rank of a_1, …, a_n: contiguous parts

    Law: the bits are those of `NumericScan` by the same schedule. Receives are posted before the first step,
    a segment is sent as soon as it is there, and a step waits for what it reads alone. Raises what
    NumericScan raises, and PlanError where the owners do not cover the chain.
    """

    def __init__(
        self,
        group: Ranks,
        owners: Sequence[int] | np.ndarray,
        device: Device,
        dtype: np.dtype,
        chain_plan: ChainPlan,
        schedule: Schedule,
        capacity: int,
        maps: IndexMaps | None = None,
        affine: bool = False,
    ) -> None:
        self.group = group
        self.placement: RankSchedule = place(schedule, owners, group.size)
        super().__init__(device, dtype, chain_plan, self.placement.schedule, capacity, maps, affine)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """This rank's steps, in order."""
        return tuple(map(self.schedule.step, self.placement.steps_of(self.group.rank)))

    @cached_property
    def elements_read(self) -> frozenset[int]:
        """The own elements whose values this rank's steps read, or others', which are sent them."""
        operands = [segment for step in self.steps for segment in (step.left, step.right)]
        operands += [segment for segment, _ in self._sent]
        owners, rank = self.placement.owners, self.group.rank
        return frozenset(
            begin for begin, end in operands if begin >= 1 and end == begin + 1 and owners[begin] == rank
        )

    @property
    def own(self) -> list[int]:
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
        return rank_memory_plan(
            self.chain_plan.sizes, self.placement, self.group.rank, batch, self.dtype.itemsize
        )

    def _affine_sizes(self) -> dict[Segment, int]:
        """Values of the injected vector of every matrix this rank holds."""
        held = {(k, k + 1) for k in self.own} | {segment for segment in self.memory.offsets if segment[0]}
        return {segment: self.chain_plan.chain.length(segment[1]) * self.capacity for segment in sorted(held)}

    def _check_memory(self) -> None:
        needed = self.memory.total_bytes
        if self.affine:
            needed += sum(self._affine_sizes().values()) * self.dtype.itemsize
        free = self.device.free_memory()
        if needed > free:
            raise DeviceError(
                f"{self.schedule.label} takes {needed} bytes on rank {self.group.rank} of {self.group.size}, "
                f"{self.device.name} has {free} bytes free: give more ranks, a smaller batch size, or "
                "another schedule"
            )

    # ---- messages ----

    @cached_property
    def _tags(self) -> dict[tuple[Segment, int], int]:
        """The first of two tags of each message, by segment and target."""
        return {
            (message.segment, message.target): FIRST_TAG + 2 * position
            for position, message in enumerate(self.placement.messages())
        }

    @cached_property
    def _sent(self) -> tuple[tuple[Segment, int], ...]:
        """What this rank sends, and to whom, in order."""
        messages, rank = self.placement.messages(), self.group.rank
        return tuple((one.segment, one.target) for one in messages if one.source == rank)

    @cached_property
    def _received(self) -> tuple[tuple[Segment, int], ...]:
        """What this rank receives, and from whom, in order."""
        messages, rank = self.placement.messages(), self.group.rank
        return tuple((one.segment, one.source) for one in messages if one.target == rank)

    def _arrays(self, segment: Segment, batch: int) -> list[Array]:
        """The arrays of a segment that travels: its values, and of a matrix of an affine scan its vector."""
        if segment[0] == 0:
            return [self.vector(segment[1], batch)]
        values = self._matrix(segment, batch).values
        return [values, self._affine_vector(segment, batch)] if self.affine else [values]

    def _program(self, batch: int) -> Callable[[], None]:
        """A run for a batch: launches bound between messages."""
        rank, group = self.group.rank, self.group
        posts: list[tuple[Segment, Array, int, int]] = []
        for segment, source in self._received:
            tag = self._tags[segment, rank]
            posts += [(segment, a, source, tag + i) for i, a in enumerate(self._arrays(segment, batch))]
        received = {segment for segment, _ in self._received}
        waiting = list(self._sent)
        there = {segment for segment in self.memory.offsets if segment not in received}
        there -= {step.out for step in self.steps}
        pieces: list[tuple[tuple[Segment, ...], Launch, tuple[tuple[Array, int, int], ...]]] = []
        launches: list[Launch] = []
        awaited: tuple[Segment, ...] = ()

        def sends() -> tuple[tuple[Array, int, int], ...]:
            """Of what is there by now, in order."""
            found: list[tuple[Array, int, int]] = []
            while waiting and waiting[0][0] in there:
                segment, target = waiting.pop(0)
                tag = self._tags[segment, target]
                found += [(a, target, tag + i) for i, a in enumerate(self._arrays(segment, batch))]
            return tuple(found)

        first = sends()
        for step in self.steps:
            new = tuple(s for s in (step.left,) if s in received and s not in there)
            if new and launches:
                pieces.append((awaited, self.device.sequence(launches), ()))
                launches, awaited = [], ()
            awaited += new
            there.update(new)
            launches += self._bind_step(step, batch)
            there.add(step.out)
            if leaving := sends():
                pieces.append((awaited, self.device.sequence(launches), leaving))
                launches, awaited = [], ()
        if launches:
            pieces.append((awaited, self.device.sequence(launches), ()))

        def run() -> None:
            under_way: dict[Segment, list[Message]] = {}
            for segment, array, source, tag in posts:
                under_way.setdefault(segment, []).append(group.post(array, source, tag))
            sending = [group.isend(*message) for message in first]
            for segments, launch, leaving in pieces:
                for segment in segments:
                    for message in under_way.pop(segment):
                        message.wait()
                launch()
                sending += [group.isend(*message) for message in leaving]
                group.progress()
            for messages in under_way.values():
                for message in messages:
                    message.wait()
            for message in sending:
                message.wait()

        return run

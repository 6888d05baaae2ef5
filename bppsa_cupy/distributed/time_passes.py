"""Passes over time of which each rank holds a range of the steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.distributed.time_choice import goes_by_chunks
from bppsa_cupy.timescan import serial
from bppsa_cupy.timescan.choice import MAXIMAL_STATE
from bppsa_cupy.timescan.chunked import RERAN, WAYS, ChunkScan, Elsewhere
from bppsa_cupy.timescan.direction import Direction
from bppsa_cupy.timescan.sizes import WalkSize
from bppsa_cupy.timescan.ways import key_of, shared_lack

#: The tags of states that go forward in time, and of gradients that go back.
STATES, GRADIENTS = 0, 1


@dataclass(frozen=True)
class TimeRanges:
    """Steps over ranks: rank r holds those from starts[r] on, below starts[r + 1].

    group   the ranks, each with one step at least
    starts  (ranks + 1,), multiples of the chunk but for the last one, T
    chunk   steps
    """

    group: Group
    starts: tuple[int, ...]
    chunk: int

    @property
    def own(self) -> slice:
        """The steps of this rank."""
        return slice(self.starts[self.group.rank], self.starts[self.group.rank + 1])

    @property
    def ranges(self) -> int:
        """How many ranks hold steps, in their order."""
        return self.group.size

    @property
    def place(self) -> int:
        """Which of them this one is."""
        return self.group.rank

    def gather(self, own: Array, every: Array) -> None:
        """Fill (ranges, ...) with (1, ...) of every rank."""
        self.group.allgather(own, every, [1] * self.group.size)

    def sum(self, own: Array) -> Array:
        """Replace an array by its sum over the ranks, and return it."""
        return self.group.sum(own)

    def chunks(self, rank: int) -> int:
        """How many chunks a rank holds."""
        return -(-(self.starts[rank + 1] - self.starts[rank]) // self.chunk)

    def order(self, reverse: bool) -> list[int]:
        """The ranks in the order in which a walk meets them."""
        ranks = list(range(self.group.size))
        return ranks[::-1] if reverse else ranks

    def neighbours(self, reverse: bool) -> tuple[int | None, int | None]:
        """The ranks before and after this one in a walk's order; None at its ends."""
        order = self.order(reverse)
        place = order.index(self.group.rank)
        before = order[place - 1] if place else None
        return before, order[place + 1] if place + 1 < len(order) else None


class RelayedForward:
    """One direction's states, from rank to rank: each goes on from the state the one before ends with.

    turn  how many ranks do so before this one
    """

    description = "serial, relayed from rank to rank"

    def __init__(self, device: Device, direction: Direction, ranges: TimeRanges) -> None:
        self._group, self._memory, self._walk = ranges.group, device.memory_of, direction.walk
        self._before, self._behind = ranges.neighbours(direction.walk.reverse)
        self.turn = ranges.order(direction.walk.reverse).index(ranges.place)
        self._run = serial.forward(device, direction.walk)

    def __call__(self) -> None:
        if self._before is not None:
            self._group.receive(self._memory(self._walk.initial), self._before, STATES)
        self._run()
        if self._behind is not None:
            self._group.isend(self._memory(self._walk.final), self._behind, STATES)


class RelayedBackward:
    """One direction's gradients, from rank to rank, last steps first.

    turn  how many ranks go before this one
    """

    def __init__(self, device: Device, d: Direction, ranges: TimeRanges) -> None:
        self._group, self._memory, self._direction = ranges.group, device.memory_of, d
        self._before, self._behind = ranges.neighbours(d.walk.reverse)
        self.turn = ranges.order(not d.walk.reverse).index(ranges.place)
        steps = d.walk.size.steps
        self._run = serial.backward(device, d.walk, d.by_output, d.boundary, steps, d.delta, d.entering)
        self.description = "serial, relayed from rank to rank"

    def __call__(self) -> None:
        if self._behind is not None:
            self._group.receive(self._memory(self._direction.boundary), self._behind, GRADIENTS)
        self._run()
        if self._before is not None:
            self._group.isend(self._memory(self._direction.entering), self._before, GRADIENTS)


class RankTimeScan:
    """One direction's gradients by chunks: every rank reduces its own chunks, receives the gradient after
    them, scans, hands the gradient before them on, and expands.

    Law: maps, boundaries and gradients are those of one process with this chunk length, to the bit, where the
    walk's chunks begin where one process's do: forward in time always, backward where the chunk divides T.
    Where a boundary is not finite, all ranks go serially.
    """

    def __init__(self, device: Device, d: Direction, ranges: TimeRanges) -> None:
        group, before = ranges.group, ranges.neighbours(d.walk.reverse)[0]
        behind = ranges.neighbours(d.walk.reverse)[1]
        counts = [ranges.chunks(rank) for rank in ranges.order(d.walk.reverse)]
        place = ranges.order(d.walk.reverse).index(group.rank)
        self._how = f"{sum(counts)} chunks of {ranges.chunk} on {len(counts)} ranks"
        self._reran = False
        relayed = RelayedBackward(device, d, ranges)

        def again(flag: Array) -> Launch:
            def call() -> None:
                self._reran = group.any(bool(device.to_host(flag)[0]))
                if self._reran:
                    relayed()

            return call

        elsewhere = Elsewhere(
            place == 0,
            None if behind is None else partial(group.receive, source=behind, tag=GRADIENTS),
            None if before is None else partial(group.send, target=before, tag=GRADIENTS),
        )
        self._scan = ChunkScan(
            device, d.walk, d.by_output, d.boundary, d.delta, d.entering, ranges.chunk, again, elsewhere
        )

    def __call__(self) -> None:
        self._scan()

    @property
    def description(self) -> str:
        """What the latest call ran, and why."""
        return f"chunked, {self._how}{RERAN if self._reran else ''}"


def backward_pass(
    device: Device, d: Direction, ranges: TimeRanges, method: str, whole: WalkSize, groups: int = 1
) -> RelayedBackward | RankTimeScan:
    """The way back of one direction by a method of net.backward; the same on every rank.

    whole, groups  the size of a walk of all samples over this rank's steps, and in how many groups they go
    """
    way, group = WAYS[method], ranges.group
    chunks = sum(map(ranges.chunks, range(group.size)))
    if way == "serial" or chunks == 1 or whole.state > MAXIMAL_STATE:
        return RelayedBackward(device, d, ranges)
    every = replace(whole, steps=ranges.starts[-1])
    if shared_lack(device, replace(d.walk.size, steps=every.steps), "backward", ranges.chunk):
        return RelayedBackward(device, d, ranges)
    if way == "auto":
        key = key_of(
            f"backward over {group.size} ranks",
            every,
            f"T{every.steps}",
            f"exactly{every.batch}",
            f"groups{groups}",
        )
        chunked = partial(goes_by_chunks, device, group.transport, every, group.size, groups)
        way = device.choices.settle(key, lambda: "chunked" if chunked() else "serial")
    if way == "chunked":
        return RankTimeScan(device, d, ranges)
    return RelayedBackward(device, d, ranges)

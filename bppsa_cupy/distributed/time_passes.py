"""Passes over time of which each rank holds a range of the steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.distributed.time_cost import predicted_seconds
from bppsa_cupy.plan import model_of as link_model_of
from bppsa_cupy.processors.models import model_of
from bppsa_cupy.timescan import cost, serial
from bppsa_cupy.timescan.chunked import WAYS, ChunkScan, Elsewhere
from bppsa_cupy.timescan.direction import Direction

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
    """One direction's states, from rank to rank: each goes on from the state the one before ends with."""

    description = "serial, relayed from rank to rank"

    def __init__(self, device: Device, direction: Direction, ranges: TimeRanges) -> None:
        self._group, self._walk = ranges.group, direction.walk
        self._before, self._behind = ranges.neighbours(direction.walk.reverse)
        self._run = serial.forward(device, direction.walk)

    def __call__(self) -> None:
        if self._before is not None:
            self._group.receive(self._walk.initial, self._before, STATES)
        self._run()
        if self._behind is not None:
            self._group.isend(self._walk.final, self._behind, STATES)


class RelayedBackward:
    """One direction's gradients, from rank to rank, last steps first."""

    def __init__(self, device: Device, d: Direction, ranges: TimeRanges) -> None:
        self._group, self._direction = ranges.group, d
        self._before, self._behind = ranges.neighbours(d.walk.reverse)
        steps = d.walk.size.steps
        self._run = serial.backward(device, d.walk, d.by_output, d.boundary, steps, d.delta, d.entering)
        self.description = "serial, relayed from rank to rank"

    def __call__(self) -> None:
        if self._behind is not None:
            self._group.receive(self._direction.boundary, self._behind, GRADIENTS)
        self._run()
        if self._before is not None:
            self._group.isend(self._direction.entering, self._before, GRADIENTS)


class RankTimeScan:
    """One direction's gradients by chunks: every rank reduces its own ones, all gather the maps and scan over
    all chunks, and every rank expands its own.

    Law: maps, boundaries and gradients are those of one process with this chunk length, to the bit, where
    the walk's chunks begin where one process's do: forward in time always, backward where the chunk divides
    T. Where a boundary is not finite, all ranks go serially.
    """

    def __init__(self, device: Device, d: Direction, ranges: TimeRanges) -> None:
        group, order = ranges.group, ranges.order(d.walk.reverse)
        counts = [ranges.chunks(rank) for rank in order]
        self._ranges, self._order, self._chunks = ranges, order, sum(counts)
        # Nobody needs the map of a walk's first chunk.
        self._rows = [ranges.chunks(rank) - (rank == order[0]) for rank in range(group.size)]
        relayed = RelayedBackward(device, d, ranges)

        def again(flag: Array) -> Launch:
            return lambda: relayed() if device.to_host(flag)[0] else None

        first = sum(counts[: order.index(group.rank)])
        self._scan = ChunkScan(
            device, d.walk, d.by_output, d.boundary, d.delta, d.entering, ranges.chunk, again,
            Elsewhere(first, self._chunks, self._gather),
        )  # fmt: skip

    def __call__(self) -> None:
        self._scan()

    @property
    def description(self) -> str:
        """What the latest call ran, and why."""
        ranges = self._ranges
        return (
            f"chunked, {self._chunks} chunks of {ranges.chunk} on {ranges.group.size} ranks{self._scan.reran}"
        )

    def _gather(self, own: Array, every: Array) -> None:
        """The rows of all ranks, in the walk's order."""
        self._ranges.group.allgather(own, every, self._rows)
        if self._order[0] != 0:
            parts = np.split(np.arange(len(every)), np.cumsum(self._rows)[:-1])
            every[...] = every[np.concatenate([parts[rank] for rank in self._order])]


def backward_pass(
    device: Device, d: Direction, ranges: TimeRanges, method: str
) -> RelayedBackward | RankTimeScan:
    """The way back of one direction by a method of net.backward; the same on every rank."""
    way, model = WAYS[method], model_of(device)
    size = replace(d.walk.size, steps=ranges.starts[-1])
    chunks = sum(map(ranges.chunks, range(ranges.group.size)))
    if way == "serial" or chunks == 1 or size.state > cost.MAXIMAL_STATE:
        return RelayedBackward(device, d, ranges)
    if way == "auto":
        steps = np.diff(ranges.starts)[ranges.order(d.walk.reverse)].tolist()
        link = link_model_of(device.name).link
        relayed, scanned = predicted_seconds(model, link, size, steps, ranges.chunk)
        way = "chunked" if scanned < relayed else "serial"
    wanted = way == "chunked" and not model.lack(size, "backward", ranges.chunk)
    # Ranks of other processors or numbers of threads may predict otherwise: rank 0 says.
    chosen = np.array([wanted])
    ranges.group.broadcast(chosen)
    return RankTimeScan(device, d, ranges) if chosen[0] else RelayedBackward(device, d, ranges)

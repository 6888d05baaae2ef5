"""Passes over time of which each rank holds a range of the steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.distributed.time_cost import Predicted, predicted_seconds
from bppsa_cupy.plan import cost_model_of
from bppsa_cupy.processors.models import model_of
from bppsa_cupy.processors.sizes import WalkSize
from bppsa_cupy.timescan import cost, serial
from bppsa_cupy.timescan.chunked import RERAN, WAYS, ChunkScan, Elsewhere
from bppsa_cupy.timescan.direction import Direction

#: The tags of states that go forward in time, and of gradients and chunks' maps that go back.
STATES, GRADIENTS, MAPS = 0, 1, 2


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
    """One direction's gradients by chunks: every rank reduces its own ones, scans over its window, and
    expands its own.

    window  number of ranks whose maps each rank scans, a power of two, itself first in the walk's order. Maps
            come in rounds, each of which doubles their number; the gradient comes from the rank after the
            window. With a window of 1 only gradients are sent, with one that holds all ranks only maps

    Law: maps, boundaries and gradients are those of one process with this chunk length, to the bit, by any
    window, where the walk's chunks begin where one process's do: forward in time always, backward where the
    chunk divides T. Where a boundary is not finite, all ranks go serially.
    """

    def __init__(self, device: Device, d: Direction, ranges: TimeRanges, window: int) -> None:
        self._group, self._order = ranges.group, ranges.order(d.walk.reverse)
        self._counts = [ranges.chunks(rank) for rank in self._order]
        self._place, self._window = self._order.index(ranges.group.rank), window
        self._chunk, self._reran = ranges.chunk, False
        relayed = RelayedBackward(device, d, ranges)

        def again(flag: Array) -> Launch:
            def call() -> None:
                self._reran = self._group.any(bool(device.to_host(flag)[0]))
                if self._reran:
                    relayed()

            return call

        behind, before = self._rank(self._place + window), self._rank(self._place - window)
        elsewhere = Elsewhere(
            sum(self._counts[: self._place]),
            self._rows(window),
            self._gather,
            None if behind is None else partial(self._group.receive, source=behind, tag=GRADIENTS),
            None if before is None else partial(self._group.send, target=before, tag=GRADIENTS),
        )
        self._scan = ChunkScan(
            device, d.walk, d.by_output, d.boundary, d.delta, d.entering, ranges.chunk, again, elsewhere
        )

    def __call__(self) -> None:
        self._scan()

    @property
    def description(self) -> str:
        """What the latest call ran, and why."""
        ranks, chunks = len(self._order), sum(self._counts)
        how = f"{chunks} chunks of {self._chunk} on {ranks} ranks, windows of {self._window}"
        return f"chunked, {how}{RERAN if self._reran else ''}"

    def _rank(self, place: int) -> int | None:
        """The rank at a place in the walk's order; None where there is none."""
        return self._order[place] if 0 <= place < len(self._order) else None

    def _rows(self, reach: int) -> int:
        """How many chunks with maps the ranks from this one on have, so many of them at most."""
        return sum(self._counts[self._place :][:reach]) - (self._place == 0)

    def _gather(self, arrays: list[Array]) -> None:
        """The rows of the window's other ranks. In each round all there are go to a rank before, and as many
        more come."""
        reach = 1
        while reach < self._window:
            behind, before = self._rank(self._place + reach), self._rank(self._place - reach)
            there, then = self._rows(reach), self._rows(2 * reach)
            handles = [self._group.post(a[there:then], behind, MAPS) for a in arrays if behind is not None]
            if before is not None:
                handles += [self._group.isend(array[:there], before, MAPS) for array in arrays]
            for handle in handles:  # of sends too: long ones may move inside of calls of MPI alone
                handle.wait()
            reach *= 2


def predicted(
    device: Device, size: WalkSize, ranges: TimeRanges, reverse: bool = False, groups: int | None = None
) -> Predicted:
    """`predicted_seconds` of passes over the steps of all ranks, of a walk of this size on one of them."""
    steps = np.diff(ranges.starts)[ranges.order(reverse)].tolist()
    # NCCL's messages of one direction go one after another: rounds gain nothing.
    link, most = cost_model_of(device.name).link, 1 if ranges.group.transport == "nccl" else None
    size = replace(size, steps=ranges.starts[-1])
    return predicted_seconds(model_of(device), link, size, steps, ranges.chunk, most, groups)


def backward_pass(
    device: Device, d: Direction, ranges: TimeRanges, method: str, whole: WalkSize, groups: int = 1
) -> RelayedBackward | RankTimeScan:
    """The way back of one direction by a method of net.backward; the same on every rank.

    whole, groups  the size of a walk of all samples over this rank's steps, and in how many groups they go
    """
    way, model, group = WAYS[method], model_of(device), ranges.group
    chunks = sum(map(ranges.chunks, range(group.size)))
    if way == "serial" or chunks == 1 or whole.state > cost.MAXIMAL_STATE:
        return RelayedBackward(device, d, ranges)
    found = predicted(device, whole, ranges, d.walk.reverse, groups)
    scanned = way == "chunked" or found.scanned < found.relayed
    if model.lack(replace(d.walk.size, steps=ranges.starts[-1]), "backward", ranges.chunk):
        scanned = False
    # Ranks of other processors or numbers of threads may predict otherwise: rank 0 says.
    chosen = np.array([found.window if scanned else 0])
    group.broadcast(chosen)
    window = int(chosen[0])
    return RankTimeScan(device, d, ranges, window) if window else RelayedBackward(device, d, ranges)

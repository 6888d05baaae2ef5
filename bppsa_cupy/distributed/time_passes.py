"""Passes over time of which each rank holds a range of the steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.timescan import WalkSize, cost, serial
from bppsa_cupy.timescan.chunked import WAYS, bind_reduce
from bppsa_cupy.timescan.direction import Direction
from bppsa_cupy.timescan.models import TimeModel, model_of

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

    def chunks(self, rank: int) -> int:
        """How many chunks a rank holds."""
        return -(-(self.starts[rank + 1] - self.starts[rank]) // self.chunk)

    def order(self, reverse: bool) -> list[int]:
        """The ranks in the order in which a walk meets them."""
        ranks = list(range(self.group.size))
        return ranks[::-1] if reverse else ranks

    def neighbours(self, reverse: bool) -> tuple[int | None, int | None]:
        """The ranks before and behind this one in a walk's order; None at its ends."""
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
        self._device, self._direction, self._ranges = device, d, ranges
        walk, group, dtype = d.walk, ranges.group, d.walk.state.dtype
        size, walks, shape = walk.size.state, walk.size.walks, d.boundary.shape
        order = ranges.order(walk.reverse)
        place = order.index(group.rank)
        # Nobody needs the map of a walk's first chunk.
        rows = [ranges.chunks(rank) - (rank == order[0]) for rank in range(group.size)]
        own, count, affine = rows[group.rank], sum(rows), d.by_output is not None
        self._rows, self._order = rows, order
        per_item = {"maps": (walks, size, size), "exponents": (walks, size), "offsets": shape}
        dtypes = {"maps": dtype, "exponents": np.dtype(np.int32), "offsets": dtype}
        names = [name for name in per_item if affine or name != "offsets"]
        empty = device.empty((0,), dtype)
        self._own = {name: device.empty((own, *per_item[name]), dtypes[name]) for name in names}
        self._all = {name: device.empty((count, *per_item[name]), dtypes[name]) for name in names}
        self._reduce = bind_reduce(
            device, walk, d.by_output, ranges.chunk, int(place == 0),
            self._own["maps"], self._own["exponents"], self._own.get("offsets", empty),
        )  # fmt: skip
        boundary = device.empty((count + 1, *shape), dtype)
        self._scan = device.bind(
            KERNELS["chunk_scan"], self._all["maps"], self._all["exponents"],
            self._all.get("offsets", empty), d.boundary, boundary, count + 1,
            *walk.size.boundary_scalars, affine,
        )  # fmt: skip
        self._flag = device.zeros(1, np.int32)
        self._check = device.bind(KERNELS["finite_check"], boundary, self._flag, boundary.size)
        chunks = [ranges.chunks(rank) for rank in order]
        first = [0, *accumulate(chunks)][place]
        self._entering = device.empty((chunks[place], *shape), dtype)
        self._expand = serial.backward(
            device, walk, d.by_output, boundary[first : first + chunks[place]], ranges.chunk, d.delta,
            self._entering,
        )  # fmt: skip
        self._serial = RelayedBackward(device, d, ranges)
        self._last = device.empty(shape, dtype)
        self.description = ""

    def __call__(self) -> None:
        self._last[...] = self._direction.boundary
        self._reduce()
        for name, own in self._own.items():
            self._gather(own, self._all[name])
        self._flag[...] = 0
        self._scan()
        self._check()
        self._expand()
        self._direction.entering[...] = self._entering[0]
        again = bool(self._device.to_host(self._flag)[0])
        if again:
            self._direction.boundary[...] = self._last
            self._serial()
        ranges = self._ranges
        self.description = (
            f"chunked, {sum(self._rows) + 1} chunks of {ranges.chunk} on {ranges.group.size} ranks"
            + ("; a boundary was not finite: run again serially" if again else "")
        )

    def _gather(self, own: Array, every: Array) -> None:
        """The rows of all ranks, in the walk's order."""
        self._ranges.group.allgather(own, every, self._rows)
        if self._order[0] != 0:
            parts = np.split(np.arange(sum(self._rows)), np.cumsum(self._rows)[:-1])
            every[...] = every[np.concatenate([parts[rank] for rank in self._order])]


def backward_pass(
    device: Device, d: Direction, ranges: TimeRanges, method: str
) -> RelayedBackward | RankTimeScan:
    """The way back of one direction by a method of net.backward; the same on every rank."""
    way, size, model = WAYS[method], d.walk.size, model_of(device)
    chunks = sum(map(ranges.chunks, range(ranges.group.size)))
    if way == "auto":
        relayed, scanned = predicted_seconds(model, size, ranges)
        way = "chunked" if scanned < relayed else "serial"
    if way == "serial" or chunks == 1 or size.state > cost.MAXIMAL_STATE:
        return RelayedBackward(device, d, ranges)
    if model.lack(replace(size, steps=ranges.starts[-1]), "backward", ranges.chunk):
        return RelayedBackward(device, d, ranges)
    return RankTimeScan(device, d, ranges)


def predicted_seconds(model: TimeModel, size: WalkSize, ranges: TimeRanges) -> tuple[float, float]:
    """What the way back takes from rank to rank, and by chunks on all of them, by the first rank's share."""
    ranks, chunk = ranges.group.size, ranges.chunk
    own = replace(size, steps=ranges.starts[1])
    whole = replace(size, steps=ranges.starts[-1])
    scanned = (
        model.reduce_seconds(own, chunk)
        + model.scan_seconds(whole, whole.chunks(chunk))
        + model.walk_seconds(own, "backward", own.chunks(chunk))
    )
    return ranks * model.walk_seconds(own, "backward", 1), scanned


def split_steps(steps: int, ranks: int, chunk: int) -> tuple[int, ...]:
    """Where the steps of each rank begin, and T: equal numbers of chunks, on as many ranks as there are
    chunks."""
    chunks = -(-steps // chunk)
    holders = min(ranks, chunks)
    return (*(-(-chunks * rank // holders) * chunk for rank in range(holders)), steps)

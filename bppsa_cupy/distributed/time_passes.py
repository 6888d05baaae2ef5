"""Passes over time of which each rank holds a range of the steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.timescan import Stack, WalkSize, serial
from bppsa_cupy.timescan.chunked import RERAN, WAYS, ChunkScan, Elsewhere
from bppsa_cupy.timescan.stack import Direction
from bppsa_cupy.timescan.ways import MAXIMAL_STATE, key_of, shared_lack

#: The tags of states that go forward in time, and of gradients that go back.
STATES, GRADIENTS = 0, 1
#: Seconds of an empty message and bytes per second, by transport.
LINKS = {"host": (2e-5, 4e9), "nccl": (2e-5, 5e10)}
#: On the host: seconds per step whatever its size, and multiply-adds per second. Measured on two cores.
HOST_STEP, HOST_RATE = 1e-8, 3.8e9
#: On a GPU: seconds per step of a walk and of a reduction, and chunks per rank that run at once.
GPU_STEP, GPU_REDUCE_STEP, GPU_CHUNKS = 1.5e-6, 3e-6, 64


def split_steps(steps: int, ranks: int, chunk: int) -> tuple[int, ...]:
    """Where the steps of each rank begin, and T: equal numbers of chunks, on as many ranks as there are
    chunks."""
    chunks = -(-steps // chunk)
    holders = min(ranks, chunks)
    return (*(-(-chunks * rank // holders) * chunk for rank in range(holders)), steps)


def chunk_length(device: Device, steps: int, ranks: int) -> int:
    """Steps per chunk: one chunk per rank on the host, where a thread reduces one at a time; GPU_CHUNKS per
    rank on a GPU. There are two chunks at least, where there are steps enough."""
    per_rank = 1 if device.shared_bytes is None else GPU_CHUNKS
    return max(1, min(-(-steps // (ranks * per_rank)), -(-steps // 2)))


def goes_by_chunks(device: Device, transport: str, size: WalkSize, ranks: int) -> bool:
    """Whether the backward pass is quicker by chunks on all ranks at once than from rank to rank.

    size  of the walk over all steps

    From rank to rank, p walks over T / p steps follow one another. By chunks, each rank reduces its steps,
    which costs about H + 8 times a walk on the host, and expands them.
    """
    latency, rate = LINKS[transport]
    message = latency + size.heads * size.batch * size.state * size.itemsize / rate
    if device.shared_bytes is None:
        work = size.cell.sums * size.units**2 / HOST_RATE
        step = HOST_STEP + work
        chunked_step = step + work * size.cell.states * (size.units + 8)
    else:
        step, chunked_step = GPU_STEP, (GPU_STEP + GPU_REDUCE_STEP) / GPU_CHUNKS
    own = size.steps / ranks
    relayed = ranks * own * step + (ranks - 1) * message
    return own * chunked_step + (ranks - 1) * message < relayed


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


class Relayed:
    """One direction's walk from rank to rank: each goes on from what the one before ends with.

    reverse  whether the last steps come first
    into, onward  the vectors that the walk begins with and ends with
    turn     how many ranks walk before this one
    """

    description = "serial, relayed from rank to rank"

    def __init__(
        self, ranges: TimeRanges, reverse: bool, run: Launch, into: Array, onward: Array, tag: int
    ) -> None:
        self._group, self._run, self._into, self._onward, self._tag = ranges.group, run, into, onward, tag
        self._before, self._behind = ranges.neighbours(reverse)
        self.turn = ranges.order(reverse).index(ranges.place)

    def __call__(self) -> None:
        if self._before is not None:
            self._group.receive(self._into, self._before, self._tag)
        self._run()
        if self._behind is not None:
            self._group.isend(self._onward, self._behind, self._tag)


def relayed_forward(device: Device, direction: Direction, ranges: TimeRanges) -> Relayed:
    """One direction's states."""
    walk, memory = direction.walk, device.memory_of
    run = serial.forward(device, walk)
    return Relayed(ranges, walk.reverse, run, memory(walk.initial), memory(walk.final), STATES)


def relayed_backward(device: Device, d: Direction, ranges: TimeRanges) -> Relayed:
    """One direction's gradients."""
    walk, memory = d.walk, device.memory_of
    run = serial.backward(device, walk, d.by_output, d.boundary, walk.size.steps, d.delta, d.entering)
    return Relayed(ranges, not walk.reverse, run, memory(d.boundary), memory(d.entering), GRADIENTS)


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
        relayed = relayed_backward(device, d, ranges)

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


def backward_pass(device: Device, d: Direction, ranges: TimeRanges, method: str) -> Relayed | RankTimeScan:
    """The backward pass of one direction by a method of net.backward; the same on every rank."""
    way, group, size = WAYS[method], ranges.group, replace(d.walk.size, steps=ranges.starts[-1])
    chunks = sum(map(ranges.chunks, range(group.size)))
    if way == "serial" or chunks == 1 or size.state > MAXIMAL_STATE:
        return relayed_backward(device, d, ranges)
    if shared_lack(device, size, "backward", ranges.chunk):
        return relayed_backward(device, d, ranges)
    if way == "auto":
        key = key_of(f"backward over {group.size} ranks", size, f"T{size.steps}", f"exactly{size.batch}")
        chunked = partial(goes_by_chunks, device, group.transport, size, group.size)
        way = device.choices.settle(key, lambda: "chunked" if chunked() else "serial")
    return (RankTimeScan if way == "chunked" else relayed_backward)(device, d, ranges)


class RankStack(Stack):
    """The passes of a recurrent layer over this rank's steps, joined with those of the other ranks.

    Law: states and the gradients by them are those of one process, to the bit, where both go serially.
    """

    def __init__(self, ranges: TimeRanges, *arguments: Any) -> None:
        self._ranges = ranges
        super().__init__(*arguments)
        self.final_states, self.state_gradients = (
            [self.device.empty(array.shape, array.dtype) for array in arrays]
            for arrays in (self.final_states, self.state_gradients)
        )

    def forward(self) -> None:
        super().forward()
        for d, final in zip(self.directions, self.final_states, strict=True):
            final[...] = d.walk.final
            self._ranges.group.broadcast(final, self._ranges.order(d.walk.reverse)[-1])

    def backward(self, method: str = "auto") -> None:
        super().backward(method)
        for d, gradient in zip(self.directions, self.state_gradients, strict=True):
            gradient[...] = d.entering
            self._ranges.group.broadcast(gradient, self._ranges.order(d.walk.reverse)[0])

    def _forward_pass(self, direction: Direction, method: str) -> Relayed:
        return relayed_forward(self.device, direction, self._ranges)

    def _order(self, passes: list[Any]) -> list[int]:
        """Relayed passes whose turn comes first: the directions come from both ends of the ranks."""
        turns = [one.turn for one in passes if isinstance(one, Relayed)]
        if len(turns) < len(passes):  # by chunks all ranks go at once, and agree on each direction in turn
            return super()._order(passes)
        return sorted(range(len(turns)), key=lambda place: turns[place])

    def _backward_pass(self, d: Direction, method: str) -> Relayed | RankTimeScan:
        return backward_pass(self.device, d, self._ranges, method)

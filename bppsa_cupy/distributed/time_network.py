"""A network over sequences whose steps lie on several ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.distributed.shared import SharedSequential
from bppsa_cupy.errors import DistributedError
from bppsa_cupy.layers import Dropout, Flatten, Layer, Linear, MatrixRecurrent, Residual
from bppsa_cupy.layers.elementwise import Elementwise
from bppsa_cupy.layers.matrix_recurrent import MatrixContext
from bppsa_cupy.network.passes import Pass, through
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.timescan import Stack, serial
from bppsa_cupy.timescan.chunked import RERAN, WAYS, ChunkScan, Elsewhere
from bppsa_cupy.timescan.stack import Direction
from bppsa_cupy.timescan.ways import MAXIMAL_STATE, shared_lack

#: The tags of states that go forward in time, and of gradients that go back.
STATES, GRADIENTS = 0, 1
#: Chunks per rank that run at once on a GPU.
GPU_CHUNKS = 64
#: Layers that work at each step on its own, beside recurrent ones; but Dropout, which draws for all steps.
PER_STEP = (Linear, Elementwise)


class TimeSequential(SharedSequential):
    """The part of one rank of a network over sequences, with the interface of Sequential.

    Created by `distribute`. Every rank holds all parameters, and the activations, states and gradients of a
    range of the time steps. Every rank calls `forward` and `backward` with the same complete batches, and
    gets the complete results. Layers after a layer with outputs="last" run on every rank.

    Each rank sends its final states to the next rank. Weight gradients are summed over the ranks in rank
    order, so they are bit-identical in every run. Raises DistributedError for a layer that couples steps and
    is not recurrent, and for fewer steps than ranks.
    """

    def __init__(self, network: Sequential, group: Group, chunk: int | None = None) -> None:
        super().__init__(network, group, chunk=chunk)
        self.chunk, layers = chunk, network.architecture.layers
        stop = len(layers)
        for index, (layer, shape) in enumerate(zip(layers, network.architecture.shapes[1:], strict=True)):
            if not _goes_by_steps(layer):
                raise DistributedError(
                    f"layer {index}, {layer!r}, cannot be split over time: before the first layer with "
                    "outputs='last', use only RNN, GRU, LSTM, CellLayer, Linear, elementwise layers other "
                    "than Dropout, and residual blocks of Linear and elementwise layers"
                )
            if len(shape) < 2:
                stop = index + 1
                break
        if not network.architecture.all_recurrent:
            raise DistributedError(
                "the network has no recurrent layer, so there are no time steps to split: use over='layers' "
                "or over='batch'"
            )
        #: The layers that lie over steps: from the first on to the first that puts out one state alone.
        self.per_step = range(stop)

    def ranges(self, steps: int) -> TimeRanges:
        """Which rank holds which of so many steps: equal numbers of chunks.

        A chunk is as long as asked for, and at most so long that every rank has one. By default there is one
        per rank, and GPU_CHUNKS per rank on a GPU; two at least, which a scan needs.
        """
        ranks, chunk = self.group.size, self.chunk
        if steps < ranks:
            raise DistributedError(
                f"{steps} steps cannot be split over {ranks} ranks: pass at least {ranks} steps, or start "
                f"at most {steps} ranks"
            )
        if chunk is None:
            walked = any(isinstance(layer, MatrixRecurrent) for layer in self.architecture.recurrent.values())
            per_rank = GPU_CHUNKS if walked and self.device.shared_bytes is not None else 1
            chunk = -(-steps // max(ranks * per_rank, 1 + walked))
        while -(-steps // chunk) < ranks:
            chunk -= 1
        chunks = -(-steps // chunk)
        starts = (-(-chunks * rank // ranks) * chunk for rank in range(ranks))
        return TimeRanges(self.group, (*starts, steps), chunk)

    def _through(self, current: Pass, x: Array) -> Array:
        self.group.share_choices()
        ranges = self.ranges(x.shape[1])
        for ctx in current.layers[: self.per_step.stop]:
            if ctx.lengths is not None:
                ctx.lengths = (ctx.lengths - ranges.held.start).clip(0, ranges.held.stop - ranges.held.start)
            if isinstance(ctx, MatrixContext):
                if getattr(ctx.make_stack, "args", ()) != (ranges,):
                    ctx.unbind()  # gives up a stack that was made over other ranges
                ctx.make_stack = partial(RankStack, ranges)
        x = self.device.xp.ascontiguousarray(x[:, ranges.held])
        y = through(current, x, self.per_step, self.training, self.random_state)
        y = self._all_steps(y, current, self.per_step.stop)
        rest = range(self.per_step.stop, len(self))
        return through(current, y, rest, self.training, self.random_state)

    def _go_back(self, current: Pass, gradient: Array, method: str, input_gradient: bool) -> Array | None:
        """Go back through the layers after the steps on every rank, then through those over steps, each rank
        for its steps, and sum the gradients."""
        layers, per_step = range(len(current.layers)), self.per_step
        go_back, by_outputs = current.architecture.backward, current.output_gradients
        by_steps = go_back(current.layers, gradient, input_gradient, by_outputs, layers[per_step.stop :])
        assert by_steps is not None, "the layers over steps are trained"
        if len(current.architecture.shapes[per_step.stop]) == 2:
            held = self.ranges(current.input.shape[1]).held
            by_steps = self.device.xp.ascontiguousarray(by_steps[:, held])
        result = go_back(current.layers, by_steps, input_gradient, by_outputs, per_step)
        # The gradients of layers over steps, which come first, are summed over the ranks.
        names = [name for name in self.gradients if int(name.partition(".")[0]) in per_step]
        self.group.sum(self.gradients.flat[self.gradients.layout.part_of(names)])
        if result is None or not input_gradient:
            return None
        return self._all_steps(result, current, 0)

    def _all_steps(self, array: Array, current: Pass, index: int) -> Array:
        """The input of layer `index` for all steps, on every rank; without a step axis, all ranks have it."""
        xp, shape = self.device.xp, current.shape_at(index)
        if len(shape) != 3:
            return array
        by_time = self.device.empty((shape[1], shape[0], *shape[2:]), current.dtype)
        rows = np.diff(self.ranges(current.input.shape[1]).starts).tolist()
        self.group.allgather(xp.ascontiguousarray(array.swapaxes(0, 1)), by_time, rows)
        return xp.ascontiguousarray(by_time.swapaxes(0, 1))


def _goes_by_steps(layer: Layer, is_inside: bool = False) -> bool:
    """Whether a layer, perhaps inside of a residual block, can have its steps on several ranks."""
    if isinstance(layer, Residual):
        return all(_goes_by_steps(inner, True) for inners in layer.branches.values() for inner in inners)
    if isinstance(layer, Flatten):
        return layer.start_dim > 1
    if isinstance(layer, MatrixRecurrent):
        return not is_inside
    return isinstance(layer, PER_STEP) and not isinstance(layer, Dropout)


# ---- passes over time of which each rank holds a range of the steps ----


@dataclass(frozen=True)
class TimeRanges:
    """The time steps of each rank of `group`: rank r holds the steps from starts[r] to starts[r + 1] - 1.

    `starts` (ranks + 1,) are multiples of the chunk length `chunk`, except the last one, T. Every rank has a
    step.
    """

    group: Group
    starts: tuple[int, ...]
    chunk: int

    @property
    def held(self) -> slice:
        """The steps of this rank."""
        return slice(self.starts[self.group.rank], self.starts[self.group.rank + 1])

    @property
    def chunks(self) -> int:
        """The number of chunks of all ranks."""
        return -(-self.starts[-1] // self.chunk)

    def order(self, reverse: bool) -> list[int]:
        """The ranks in the order in which a walk meets them."""
        ranks = list(range(self.group.size))
        return ranks[::-1] if reverse else ranks

    def neighbours(self, reverse: bool) -> tuple[int | None, int | None]:
        """The ranks before and after this one in a walk's order; None at its ends."""
        size, rank, step = self.group.size, self.group.rank, -1 if reverse else 1
        before, after = (other if 0 <= other < size else None for other in (rank - step, rank + step))
        return before, after


class Relayed:
    """The walk of one direction from rank to rank: each rank continues from the final vectors of the rank
    before.

    Attributes
    ----------
    turn : int
        The number of ranks that walk before this rank.
    """

    description = "serial, relayed from rank to rank"

    def __init__(self, ranges: TimeRanges, device: Device, d: Direction, is_forward: bool) -> None:
        walk, memory = d.walk, device.memory_of
        reverse = walk.reverse if is_forward else not walk.reverse
        self._group, (self._before, self._after) = ranges.group, ranges.neighbours(reverse)
        self.turn = ranges.order(reverse).index(ranges.group.rank)
        if is_forward:
            self._first, self._last, self._tag = memory(walk.initial), memory(walk.final), STATES
            self._walk = serial.forward(device, walk)
        else:
            self._first, self._last, self._tag = memory(d.boundary), memory(d.entering), GRADIENTS
            steps = walk.size.steps
            self._walk = serial.backward(device, walk, d.by_output, d.boundary, steps, d.delta, d.entering)

    def __call__(self) -> None:
        if self._before is not None:
            self._group.receive(self._first, self._before, self._tag)
        self._walk()
        if self._after is not None:
            self._group.isend(self._last, self._after, self._tag)


class RankTimeScan:
    """One direction's gradients by chunks: every rank reduces its own chunks, receives the gradient after
    them, scans, hands the gradient before them on, and expands.

    Law: maps, boundaries and gradients are those of one process with this chunk length, to the bit, where the
    walk's chunks begin where one process's do: forward in time always, backward where the chunk divides T.
    Where a boundary is not finite, all ranks go serially.
    """

    def __init__(self, device: Device, d: Direction, ranges: TimeRanges) -> None:
        group, (before, after) = ranges.group, ranges.neighbours(d.walk.reverse)
        self._how = f"{ranges.chunks} chunks of {ranges.chunk} on {group.size} ranks"
        self._reran = False
        relayed = Relayed(ranges, device, d, False)

        def again(flag: Array) -> Launch:
            def call() -> None:
                self._reran = group.any(bool(device.to_host(flag)[0]))
                if self._reran:
                    relayed()

            return call

        elsewhere = Elsewhere(
            before is None,
            None if after is None else partial(group.receive, source=after, tag=GRADIENTS),
            None if before is None else partial(group.send, target=before, tag=GRADIENTS),
        )
        self._scan = ChunkScan(
            device, d.walk, d.by_output, d.boundary, d.delta, d.entering, ranges.chunk, again, elsewhere
        )

    def __call__(self) -> None:
        self._scan()

    @property
    def description(self) -> str:
        """Describes what the latest call ran, and why."""
        return f"chunked, {self._how}{RERAN if self._reran else ''}"


class RankStack(Stack):
    """The passes of a recurrent layer over this rank's steps, joined with those of the other ranks.

    Law: states and the gradients with respect to them are those of one process, to the bit, where both go
    serially.
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
        return Relayed(self._ranges, self.device, direction, True)

    def _order(self, passes: list[Any]) -> list[int]:
        """Relayed passes whose turn comes first: the directions come from both ends of the ranks."""
        turns = [item.turn for item in passes if isinstance(item, Relayed)]
        if len(turns) < len(passes):  # by chunks all ranks go at once, and agree on each direction in turn
            return super()._order(passes)
        return sorted(range(len(turns)), key=lambda place: turns[place])

    def _backward_pass(self, d: Direction, method: str) -> Relayed | RankTimeScan:
        """The backward pass of one direction by a method of net.backward; the same on every rank."""
        device, ranges, way = self.device, self._ranges, WAYS[method]
        size = replace(d.walk.size, steps=ranges.starts[-1])
        if way == "auto":  # from rank to rank is quicker where a chunk costs a core about H walks
            way = "serial" if device.shared_bytes is None else "chunked"
        lacks = size.state > MAXIMAL_STATE or shared_lack(device, size, "backward", ranges.chunk)
        if way == "serial" or ranges.chunks == 1 or lacks:
            return Relayed(ranges, device, d, False)
        return RankTimeScan(device, d, ranges)

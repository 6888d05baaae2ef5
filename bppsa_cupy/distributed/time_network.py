"""A network over sequences whose steps lie on several ranks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.distributed.shared import SharedChoices, SharedSequential
from bppsa_cupy.distributed.time_passes import RankStack, TimeRanges, chunk_length, split_steps
from bppsa_cupy.errors import DistributedError
from bppsa_cupy.layers import (
    Dropout,
    Flatten,
    Layer,
    Linear,
    LinearRecurrent,
    MatrixRecurrent,
    Residual,
    RMSNorm,
)
from bppsa_cupy.layers.elementwise import Elementwise
from bppsa_cupy.layers.matrix_recurrent import MatrixContext
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.backward import by_vjp
from bppsa_cupy.network.buffers import BufferSet
from bppsa_cupy.network.forward import through
from bppsa_cupy.network.layout import lay_out
from bppsa_cupy.network.parameters import ParameterSet
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.network.sequential import Sequential

#: Layers that work at each step on its own, beside recurrent ones; but Dropout, which draws for all steps.
PER_STEP = (Linear, Elementwise, RMSNorm)


class TimeSequential(SharedSequential):
    """One rank's part of a network over sequences, with the interface of Sequential; made by `distribute`.

    Every rank holds all parameters, and a range of the steps of every sequence: activations, states and
    deltas of these alone. Every rank calls `forward` and `backward` with the same whole batches; both give
    whole results on every rank; states of recurrent layers are on those that hold steps: of fewer chunks than
    ranks the first ones. Layers after the one that puts out a last state are computed by every rank.

    States go from rank to rank. Gradients of weights over steps are summed over the ranks, in rank order: the
    same bits in every run.
    Raises DistributedError for a layer that couples steps and is not recurrent.
    """

    def __init__(self, network: Sequential, group: Group, chunk: int | None = None) -> None:
        shapes = network.architecture.parameter_shapes()
        parameters, gradients = (ParameterSet(network.device, network.dtype, shapes) for _ in range(2))
        buffers = BufferSet(network.device, network.dtype, network.architecture.initial_buffers())
        super().__init__(network, group, parameters, gradients, buffers, chunk=chunk)
        self.chunk, self.per_step = chunk, _per_step(network.architecture)
        self._groups: dict[int, Group | None] = {group.size: group}
        self._choices = SharedChoices(group)

    def ranges(self, steps: int) -> TimeRanges | None:
        """Who holds which of so many steps; None on a rank that holds none."""
        starts, chunk = self._cut(steps)
        holders = len(starts) - 1
        if holders not in self._groups:
            self._groups[holders] = self.group.split(0 if self.group.rank < holders else None)
        group = self._groups[holders]
        return None if group is None else TimeRanges(group, starts, chunk)

    def rows(self, current: Pass) -> list[int]:
        """How many of a pass's steps each rank holds."""
        held = np.diff(self._cut(current.input.shape[1])[0]).tolist()
        return held + [0] * (self.group.size - len(held))

    def _cut(self, steps: int) -> tuple[tuple[int, ...], int]:
        """`TimeRanges.starts`, and the chunk length: as asked for, or `chunk_length`; of layers whose state
        goes through no matrix, one chunk per rank."""
        chunk, ranks = self.chunk, self.group.size
        if chunk is None:
            walked = any(isinstance(layer, MatrixRecurrent) for layer in self.architecture.recurrent.values())
            chunk = chunk_length(self.device, steps, ranks) if walked else -(-steps // ranks)
        return split_steps(steps, ranks, chunk), chunk

    def _through(self, current: Pass, x: Array) -> Array:
        self._choices.begin_pass()
        xp, ranges = self.device.xp, self.ranges(x.shape[1])
        for ctx in current.layers[: self.per_step.stop]:
            ctx.over_time = ranges
            if ranges is not None and ctx.lengths is not None:
                ctx.lengths = (ctx.lengths - ranges.own.start).clip(0, ranges.own.stop - ranges.own.start)
            if ranges is not None and isinstance(ctx, MatrixContext):
                ctx.make_stack = _kept_stack(ctx, ranges)
        y = None
        if ranges is not None:
            own = xp.ascontiguousarray(x[:, ranges.own])
            y = through(current, own, self.per_step, self.training, self.random_state)
        y = whole_steps(self, y, current, self.per_step.stop)
        rest = range(self.per_step.stop, len(self))
        return through(current, y, rest, self.training, self.random_state)

    def _go_back(self, current: Pass, gradient: Array, method: str, input_gradient: bool) -> Array | None:
        """Layers after the steps on every rank, those over steps each rank its own; then the sums."""
        layers, per_step, result = range(len(current.layers)), self.per_step, None
        whole = by_vjp(current, gradient, layers[per_step.stop :], input_gradient)
        ranges = self.ranges(current.input.shape[1])
        assert whole is not None, "the layers over steps are trained"
        if ranges is not None:
            over_steps = len(current.architecture.shapes[per_step.stop]) == 2
            own = self.device.xp.ascontiguousarray(whole[:, ranges.own]) if over_steps else whole
            result = by_vjp(current, own, per_step, input_gradient)
        # The gradients of layers over steps, which come first, are summed over the ranks.
        shapes = self.architecture.parameter_shapes()
        ours = {n: shape for n, shape in shapes.items() if int(n.partition(".")[0]) in per_step}
        part = self.gradients.flat[: lay_out(self.dtype, ours)[1]]
        if ranges is None:
            part[...] = 0
        self.group.sum(part)
        return whole_steps(self, result, current, 0) if input_gradient else None


def _kept_stack(ctx: MatrixContext, ranges: TimeRanges) -> Any:
    """What makes a stack over these ranges; one that was made over others is given up."""
    made = getattr(ctx.make_stack, "args", ())
    if made != (ranges,):
        ctx.unbind()
    return partial(RankStack, ranges)


def whole_steps(network: TimeSequential, own: Array | None, current: Pass, index: int) -> Array:
    """What lies before layer `index` for all steps, on every rank, from each holder's own steps.

    Without a step axis, as after a last state, all holders have the same, and the first gives it.
    """
    device, group = network.device, network.group
    xp, shape = device.xp, current.shape_at(index)
    if len(shape) != 3:
        result = device.empty(shape, current.dtype) if own is None else xp.ascontiguousarray(own)
        group.broadcast(result, 0)
        return result
    by_time = device.empty((shape[1], shape[0], *shape[2:]), current.dtype)
    given = device.empty((0, shape[0], *shape[2:]), current.dtype)
    if own is not None:
        given = xp.ascontiguousarray(own.swapaxes(0, 1))
    group.allgather(given, by_time, network.rows(current))
    return xp.ascontiguousarray(by_time.swapaxes(0, 1))


def _goes_by_steps(layer: Layer, is_inside: bool = False) -> bool:
    """Whether a layer, perhaps inside of a residual block, can have its steps on several ranks."""
    if isinstance(layer, Residual):
        return all(_goes_by_steps(inner, True) for inners in layer.branches.values() for inner in inners)
    if isinstance(layer, Flatten):
        return layer.start_dim > 1
    if isinstance(layer, LinearRecurrent):
        return True
    if isinstance(layer, MatrixRecurrent):
        return not is_inside
    return isinstance(layer, PER_STEP) and not isinstance(layer, Dropout)


def _per_step(architecture: Architecture) -> range:
    """The layers that lie over steps: from the first on to the first that puts out one state alone."""
    stop = len(architecture.layers)
    for index, (layer, shape) in enumerate(zip(architecture.layers, architecture.shapes[1:], strict=True)):
        if not _goes_by_steps(layer):
            raise DistributedError(
                f"layer {index}, {layer!r}, cannot be split over time: recurrent layers, Linear, RMSNorm, "
                "elementwise layers but Dropout, and residual blocks of them whose recurrent layers are "
                "linear ones can, up to a last state"
            )
        if len(shape) < 2:
            stop = index + 1
            break
    if not any(layer.is_recurrent() for layer in architecture.layers):
        raise DistributedError("the network has no recurrent layer: there are no steps to split over ranks")
    return range(stop)

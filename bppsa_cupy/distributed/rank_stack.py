"""The passes of a recurrent layer whose steps lie on several ranks, by groups of samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.distributed.parameters import Shapes
from bppsa_cupy.distributed.time_choice import group_count, samples_per_group
from bppsa_cupy.distributed.time_passes import (
    RelayedBackward,
    RelayedForward,
    TimeRanges,
    backward_pass,
)
from bppsa_cupy.timescan import Stack, StackPasses, stack_shapes
from bppsa_cupy.timescan.direction import Direction
from bppsa_cupy.timescan.sizes import StackSize, WalkSize
from bppsa_cupy.timescan.stack import DirectionPass


class RankStack(StackPasses):
    """The passes over this rank's steps, joined with those of the other ranks.

    A rank takes one group of samples after another, each in a stack of its own on a part of the buffers; the
    next rank begins with a group as soon as this one is through with it.

    Law: states and the gradients by them are to the bit those of all samples at once; gradients by weights
    are sums over the groups, in their order.
    """

    def __init__(
        self,
        ranges: TimeRanges,
        device: Device,
        sizes: StackSize,
        buffers: Mapping[str, Array],
        parameters: Mapping[str, Array],
        gradients: Mapping[str, Array],
        forward_method: str,
    ) -> None:
        self.sizes, self.lengths, walk = sizes, buffers["lengths"], sizes.walk
        self.device, self._ranges, self._gradients = device, ranges, gradients
        self._samples = cut_samples(walk, groups_of(device, walk, ranges))
        #: The gradients by the weights of a group that is not the first.
        self._others: dict[str, Array] = {}
        if len(self._samples) > 1:
            self._others = {name: device.empty(a.shape, a.dtype) for name, a in gradients.items()}
        self._stacks: list[Stack] = []
        shapes = stack_shapes(sizes, device)
        for own in self._samples:
            of_group = replace(sizes, walk=replace(walk, batch=own.stop - own.start))
            cut = cut_buffers(buffers, shapes, stack_shapes(of_group, device), own)
            into = self._others if self._stacks else gradients
            passes = ranges, walk, len(self._samples)
            self._stacks.append(_GroupStack(*passes, device, of_group, cut, parameters, into, forward_method))
        shape = walk.cell.states * walk.hidden, walk.batch
        self.initial_states, self.boundaries, self.final_states, self.state_gradients = (
            [device.empty(shape, d.walk.state.dtype) for d in self._stacks[0].directions] for _ in range(4)
        )

    @property
    def stacks(self) -> Sequence[Stack]:
        return self._stacks

    def take(self, x: Array) -> None:
        for stack, own in self._each():
            stack.ends_early = self.ends_early
            stack.take(x[own])

    def forward(self) -> None:
        for stack, own in self._each():
            for d, initial in zip(stack.directions, self.initial_states, strict=True):
                d.walk.initial[...] = initial[:, own]
            stack.forward()
            for d, final in zip(stack.directions, self.final_states, strict=True):
                final[:, own] = d.walk.final
        for d, final in zip(self._stacks[0].directions, self.final_states, strict=True):
            self._ranges.group.broadcast(final, self._ranges.order(d.walk.reverse)[-1])

    def put(self, out: Array) -> None:
        for stack, own in self._each():
            stack.put(out[own])

    def take_gradient(self, gradient: Array) -> None:
        for stack, own in self._each():
            stack.take_gradient(gradient[own])

    def backward(self, method: str = "auto") -> None:
        for stack in self._stacks:  # on all ranks at once, before the first of them waits
            stack.bind_backward(method)
        for stack, own in self._each():
            for d, boundary in zip(stack.directions, self.boundaries, strict=True):
                d.boundary[...] = boundary[:, own]
            stack.backward(method)
            for d, gradient in zip(stack.directions, self.state_gradients, strict=True):
                gradient[:, own] = d.entering
        for d, gradient in zip(self._stacks[0].directions, self.state_gradients, strict=True):
            self._ranges.group.broadcast(gradient, self._ranges.order(d.walk.reverse)[0])

    def input_gradient(self, out: Array) -> None:
        for stack, own in self._each():
            stack.input_gradient(out[own])

    def weight_gradients(self) -> None:
        first, *others = self._stacks
        first.weight_gradients()
        for stack in others:
            stack.weight_gradients()
            for name, total in self._gradients.items():
                self.device.xp.add(total, self._others[name], out=total)

    @property
    def forward_ways(self) -> tuple[str, ...]:
        return self._told(self._stacks[-1].forward_ways)

    @property
    def backward_ways(self) -> tuple[str, ...]:
        return self._told(self._stacks[-1].backward_ways)

    def _each(self) -> Iterator[tuple[Stack, slice]]:
        """Each group's stack, and its samples."""
        return zip(self._stacks, self._samples, strict=True)

    def _told(self, ways: tuple[str, ...]) -> tuple[str, ...]:
        """The ways of a group, with how many there are."""
        groups = len(self._samples)
        return ways if groups == 1 else tuple(f"{way}, {groups} groups of samples" for way in ways)


class _GroupStack(Stack):
    """The passes of a group of samples over this rank's steps."""

    def __init__(self, ranges: TimeRanges, whole: WalkSize, groups: int, *arguments: Any) -> None:
        self._ranges, self._whole, self._groups = ranges, whole, groups
        super().__init__(*arguments)

    def _forward_pass(self, direction: Direction, method: str, free: int) -> RelayedForward:
        return RelayedForward(self.device, direction, self._ranges)

    def _order(self, passes: list[DirectionPass]) -> list[int]:
        """Of relayed ones that whose turn comes first: the directions come from both ends of the ranks."""
        turns = [one.turn for one in passes if isinstance(one, RelayedForward | RelayedBackward)]
        if len(turns) < len(passes):  # by chunks all ranks go at once, and agree on each direction in turn
            return super()._order(passes)
        return sorted(range(len(turns)), key=lambda place: turns[place])

    def _backward_pass(self, d: Direction, method: str, free: int) -> Any:
        return backward_pass(self.device, d, self._ranges, method, self._whole, self._groups)


def groups_of(device: Device, walk: WalkSize, ranges: TimeRanges) -> int:
    """Into how many groups the samples are cut: by the threads of rank 0. Collective."""
    chosen = np.array([group_count(device, walk.batch, ranges.group.size)])
    if ranges.group.size > 1:
        ranges.group.broadcast(chosen)
    return int(chosen[0])


def cut_samples(walk: WalkSize, groups: int) -> list[slice]:
    """The samples of each group."""
    own = max(1, samples_per_group(walk.batch, groups))
    return [slice(start, min(start + own, walk.batch)) for start in range(0, max(1, walk.batch), own)]


def cut_buffers(
    buffers: Mapping[str, Array], shapes: Shapes, own_shapes: Shapes, own: slice
) -> dict[str, Array]:
    """The parts of buffers that some samples take.

    shapes, own_shapes  of the buffers of all samples, and of these; those without an axis of samples, the
                        last of several, are shared
    """
    cut = {"lengths": buffers["lengths"][own]}
    for name, shape in own_shapes.items():
        if len(shape) == 1 or shape == shapes[name]:
            cut[name] = buffers[name]
            continue
        rows = prod(shape[:-1])
        cut[name] = buffers[name].reshape(-1)[rows * own.start : rows * own.stop].reshape(shape)
    return cut

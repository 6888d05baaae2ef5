"""The serial passes over time, forward and inside each chunk backward: one fused kernel each, or of a whole
sequence of wide states one launch of clusters or of the whole grid, or a launch per step.

A step waits for every unit of the one before, so no launch can hold two of them unless its blocks wait for
one another. Launches per step are for weights beyond what one block can hold; they are bound when a pass
first runs, and made as graphs of many of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.devices.base import RefusedError
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels.frames.clusters import cluster_kernel
from bppsa_cupy.raw_kernels.frames.grids import exchanged_sums, grid_kernel
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import Kernel
from bppsa_cupy.timescan.ways import (
    Walk,
    WalkSize,
    best_layout,
    grid_tiles,
    scratch_backward,
    serial_way,
    serial_ways,
)

#: Launches of a graph, at most: making one takes some 20 µs a launch.
LAUNCHES = 500


class BySteps:
    """A pass of one walk: `first`, then the launches of `count` steps, then `last`.

    Parameters
    ----------
    bind
        Function that binds the launch of a step, given its number.
    """

    def __init__(
        self, device: Device, first: Launch, count: int, bind: Callable[[int], Launch], last: Launch
    ) -> None:
        self._device, self._count, self._bind = device, count, bind
        self._first, self._last = first, last
        self._graphs: list[Launch] | None = None

    def __call__(self) -> None:
        if self._graphs is None:
            launches = [self._bind(step) for step in range(self._count)]
            self._graphs = [
                self._device.sequence(launches[begin : begin + LAUNCHES])
                for begin in range(0, self._count, LAUNCHES)
            ]
        self._first()
        for graph in self._graphs:
            graph()
        self._last()


def forward_by_steps(device: Device, walk: Walk) -> BySteps:
    """A call that fills `walk.state`, `walk.gates` and `walk.final`."""
    kernel, steps = kernels_of(walk.size.cell)["forward_step"], walk.size.steps

    def bind(step: int) -> Launch:
        t = walk.time(step)
        return device.bind(
            kernel, walk.projected[t], walk.weight_hh, walk.bias_hh, walk.unit, walk.before(step),
            walk.lengths, walk.state[t], walk.gates[t], t, *walk.size.scalars[1:],
        )  # fmt: skip

    def last() -> None:
        device.memory_of(walk.final)[...] = device.memory_of(walk.before(steps))

    return BySteps(device, lambda: None, steps, bind, last)


def backward_by_steps(
    device: Device, walk: Walk, gradient: Array | None, boundary: Array, delta: Array, entering: Array
) -> BySteps:
    """A call that goes back through all steps.

    A launch begins with what W_hh hands on of the step after. One more ends the pass: of a time at which
    every sample is padded, so that it does that alone.

    Parameters
    ----------
    gradient
        (T, H, B), by the output of every step; None where there is none.
    boundary
        (P H, B), by the state after the last step.
    delta
        Output array, (T, cell.deltas * H, B).
    entering
        Output array, (P H, B), by the state before the first step.
    """
    size, dtype, batch = walk.size, walk.state.dtype, walk.size.batch
    kernel, steps, cell = kernels_of(size.cell)["backward_step"], size.steps, size.cell
    by_unit = device.empty((size.hidden, cell.sums * size.hidden), dtype)
    none = device.arrange(device.zeros((cell.deltas * size.hidden, batch), dtype))
    unused = [device.empty_walk((rows * size.hidden, batch), dtype) for rows in (cell.deltas, cell.saved)]
    carried = [device.empty_walk((cell.states * size.hidden, batch), dtype) for _ in range(2)]

    def first() -> None:
        by_unit[...] = walk.weight_hh.T

    def bind(number: int) -> Launch:
        step = steps - 1 - number
        later = delta[walk.time(step + 1)] if number else none
        by_later = carried[number % 2] if number else boundary
        if step < 0:
            return device.bind(
                kernel, walk.initial, unused[1], walk.initial, by_unit, walk.unit, walk.or_none(None), later,
                by_later, walk.lengths, unused[0], entering, steps, *size.scalars[1:], False,
            )  # fmt: skip
        t = walk.time(step)
        return device.bind(
            kernel, walk.state[t], walk.gates[t], walk.before(step), by_unit, walk.unit,
            walk.or_none(None if gradient is None else gradient[t]), later, by_later, walk.lengths, delta[t],
            carried[(number + 1) % 2], t, *size.scalars[1:], gradient is not None,
        )  # fmt: skip

    return BySteps(device, first, steps + 1, bind, lambda: None)


class Together:
    """A pass by one launch whose blocks wait for one another; once the device has refused the launch, this
    and all later passes go the other way.

    Parameters
    ----------
    launch
        The launch of the blocks.
    way
        "by clusters of 8 blocks", or "by the whole grid"; empty once the launch was refused.
    other
        Function that binds the pass by the next method.
    """

    def __init__(self, launch: Launch, way: str, other: Callable[[], Launch]) -> None:
        self.launch, self._other, self.way = launch, other, way

    def __call__(self) -> None:
        try:
            self.launch()
        except RefusedError:
            if not self.way:
                raise
            self.way, self.launch = "", self._other()
            self.launch()


def describe_launch(launch: Launch) -> str:
    """Return the text about the launches in the description of a serial pass."""
    if isinstance(launch, Together):
        return f", {launch.way}" if launch.way else describe_launch(launch.launch)
    return ", a launch a step" if isinstance(launch, BySteps) else ""


def forward(device: Device, walk: Walk, way: str | None = None) -> Launch:
    """A call that fills `walk.state`, `walk.gates` and `walk.final`.

    Parameters
    ----------
    way
        A member of `ways.serial_ways`. Default: the measured one, or the first.
    """
    if way is None:
        way = serial_way(device, walk.size, "forward", partial(forward, device))
    by = partial(forward_in_blocks, device, walk)
    return _by_way(device, walk.size, "forward", way, by, partial(forward_by_steps, device, walk))


def _by_way(
    device: Device,
    size: WalkSize,
    verb: str,
    way: str,
    by_blocks: Callable[..., Launch],
    each_step: Callable[[], Launch],
) -> Launch:
    """The pass by a way; clusters and grids that the device refuses at a launch are replaced by the next
    way."""
    if way == "blocks":
        return by_blocks()
    if way == "steps":
        return each_step()

    def other() -> Launch:
        return by_blocks() if "blocks" in serial_ways(device, size, verb) else each_step()

    if way.startswith("grid "):
        tile = grid_tiles(device, size, verb).get(way)
        kernel, told_way = tile and grid_kernel(size.cell, verb, tile), "by the whole grid"
    else:
        blocks = int(way.removeprefix("clusters "))
        layout = best_layout(device, size, verb, blocks)
        kernel = layout and cluster_kernel(size.cell, verb, layout)
        told_way = f"by clusters of {blocks} blocks"
    if kernel is None:
        raise DeviceError(
            f"method {way!r} does not support {size.hidden} hidden units on {device.name}: use another method"
        )
    try:
        return Together(by_blocks(kernel=kernel), told_way, other)
    except RefusedError:
        return other()


def forward_in_blocks(device: Device, walk: Walk, kernel: Kernel | None = None) -> Launch:
    """The same by one launch, a block for each of some samples, or by a `kernel` of clusters or the grid."""
    kernel = kernel or kernels_of(walk.size.cell)["forward"]
    more = _exchanged(device, kernel, walk) if kernel.cooperative else ()
    return device.bind(
        kernel, walk.projected, walk.weight_hh, walk.bias_hh, walk.unit, walk.initial, walk.lengths,
        walk.state, walk.gates, walk.final, *more, *walk.size.scalars, walk.reverse,
    )  # fmt: skip


def _exchanged(device: Device, kernel: Kernel, walk: Walk) -> tuple[Array, Array]:
    """The arrays in which the blocks of a grid exchange sums, and count arrivals."""
    sums = exchanged_sums(kernel, walk.size.hidden, walk.size.batch)
    return device.empty(sums, walk.state.dtype), device.zeros(1, np.int64)


def backward(
    device: Device,
    walk: Walk,
    gradient: Array | None,
    boundary: Array,
    chunk: int,
    delta: Array,
    entering: Array,
    way: str | None = None,
) -> Launch:
    """A call that goes back through every chunk of `chunk` steps, each from its own boundary.

    Parameters
    ----------
    gradient
        (T, H, B), by the output of every step; None where there is none.
    boundary
        (ceil(T / chunk), P H, B), by the state at each chunk's end, from later steps.
    delta
        Output array, (T, cell.deltas * H, B), by `walk.projected`, the recurrent sums of the separate gates
        and the unit parameters.
    entering
        Output array, (ceil(T / chunk), P H, B), by the state before each chunk.
    way
        See `forward`. Several chunks always run by blocks.
    """
    in_blocks = partial(backward_in_blocks, device, walk, gradient, boundary, chunk, delta, entering)
    if chunk < walk.size.steps:
        return in_blocks()

    def scratch(other: Walk, way: str) -> Launch:
        by_output, last, *results = scratch_backward(device, other)
        return backward(device, other, by_output, last, other.size.steps, results[0], results[1], way)

    if way is None:
        way = serial_way(device, walk.size, "backward", scratch)
    each_step = partial(backward_by_steps, device, walk, gradient, boundary, delta, entering)
    return _by_way(device, walk.size, "backward", way, in_blocks, each_step)


def backward_in_blocks(
    device: Device,
    walk: Walk,
    gradient: Array | None,
    boundary: Array,
    chunk: int,
    delta: Array,
    entering: Array,
    wanted: Array | None = None,
    kernel: Kernel | None = None,
) -> Launch:
    """The same by one launch, a block for each of some samples, or by a `kernel` of clusters or the grid;
    where there is a `wanted`, (1) int32 on the device, and it is 0 when the launch runs, nothing is done."""
    if kernel is not None and kernel.cooperative:
        return device.bind(
            kernel, walk.state, walk.gates, walk.initial, *walk.weights, walk.or_none(gradient), boundary,
            walk.lengths, delta, entering, *_exchanged(device, kernel, walk), *walk.size.scalars,
            gradient is not None, walk.reverse,
        )  # fmt: skip
    return device.bind(
        kernel or kernels_of(walk.size.cell)["backward"], walk.state, walk.gates, walk.initial,
        *walk.weights, walk.or_none(gradient), boundary, walk.lengths,
        device.empty(0, np.int32) if wanted is None else wanted, delta, entering, *walk.size.scalars, chunk,
        gradient is not None, walk.reverse, wanted is not None,
    )  # fmt: skip

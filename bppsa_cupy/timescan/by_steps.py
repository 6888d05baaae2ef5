"""The serial passes over time by a launch a step, which all multiprocessors share: for weights beyond what
one block can hold.

A step waits for every unit of the one before, so no launch can hold two of them unless its blocks wait for
one another. Launches are bound when a pass first runs, and made as graphs of many of them.
"""

from __future__ import annotations

from collections.abc import Callable

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.timescan.walk import Walk

#: Launches of a graph, at most: making one takes some 20 µs a launch.
LAUNCHES = 500


class BySteps:
    """A pass of one walk: `first`, then the launches of `count` steps, then `last`.

    bind  binds the launch of a step by its number
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


def forward(device: Device, walk: Walk) -> BySteps:
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


def backward(
    device: Device, walk: Walk, gradient: Array | None, boundary: Array, delta: Array, entering: Array
) -> BySteps:
    """A call that goes back through all steps.

    gradient  (T, H, B), by the output of every step; None where there is none
    boundary  (P H, B), by the state after the last step
    delta     out, (T, cell.deltas * H, B)
    entering  out, (P H, B), by the state before the first step

    A launch begins with what W_hh hands on of the step after. One more ends the pass: of a time at which
    every sample is padded, so that it does that alone.
    """
    size, dtype, batch = walk.size, walk.state.dtype, walk.size.batch
    kernel, steps, cell = kernels_of(size.cell)["backward_step"], size.steps, size.cell
    by_unit = device.empty((size.heads, size.units, cell.sums * size.units), dtype)
    none = device.arrange(device.zeros((cell.deltas * size.hidden, batch), dtype))
    unused = [device.empty_walk((rows * size.hidden, batch), dtype) for rows in (cell.deltas, cell.kept)]
    carried = [device.empty_walk((cell.states * size.hidden, batch), dtype) for _ in range(2)]

    def first() -> None:
        by_unit[...] = walk.weight_hh.swapaxes(1, 2)

    def bind(number: int) -> Launch:
        step = steps - 1 - number
        later = delta[walk.time(step + 1)] if number else none
        given = carried[number % 2] if number else boundary
        if step < 0:
            return device.bind(
                kernel, walk.initial, unused[1], walk.initial, by_unit, walk.unit, walk.or_none(None), later,
                given, walk.lengths, unused[0], entering, steps, *size.scalars[1:], False,
            )  # fmt: skip
        t = walk.time(step)
        return device.bind(
            kernel, walk.state[t], walk.gates[t], walk.before(step), by_unit, walk.unit,
            walk.or_none(None if gradient is None else gradient[t]), later, given, walk.lengths, delta[t],
            carried[(number + 1) % 2], t, *size.scalars[1:], gradient is not None,
        )  # fmt: skip

    return BySteps(device, first, steps + 1, bind, lambda: None)

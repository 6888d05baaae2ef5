"""The serial passes over time, forward and inside each chunk backward: one fused kernel each, or of a whole
sequence of wide states one launch of clusters, or a launch a step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.devices.base import RefusedError
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels.frames.clusters import cluster_kernel
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import Kernel, Layout
from bppsa_cupy.timescan import by_steps
from bppsa_cupy.timescan.sizes import WalkSize
from bppsa_cupy.timescan.walk import Walk
from bppsa_cupy.timescan.ways import (
    best_layout,
    scratch_backward,
    serial_way,
    serial_ways,
    walk_scalars,
)


class InClusters:
    """A pass by one launch of clusters; once the device has refused the launch, this and all later passes go
    the other way.

    launch  of the clusters
    blocks  of a cluster; 0 once the launch was refused
    other   makes the pass by the other way
    """

    def __init__(self, launch: Launch, layout: Layout, other: Callable[[], Launch]) -> None:
        self.launch, self._other, self.blocks = launch, other, layout.cluster

    def __call__(self) -> None:
        try:
            self.launch()
        except RefusedError:
            if not self.blocks:
                raise
            self.blocks, self.launch = 0, self._other()
            self.launch()


def check_shared(device: Device, size: WalkSize) -> None:
    """Raise DeviceError, with the bytes needed and there, where no way of either pass fits the shared memory
    of the device: before anything of a pass is launched."""
    for verb in ("forward", "backward"):
        if serial_ways(device, size, verb) == ["blocks"]:
            kernel = kernels_of(size.cell)[verb]
            scalars = walk_scalars(size, max(1, size.steps))
            device.check_shared(kernel, kernel.launch(device.facts_of_launch(scalars, size.itemsize)))


def told(launch: Launch) -> str:
    """What a description of a serial pass says of its launches."""
    if isinstance(launch, InClusters):
        return f", by clusters of {launch.blocks} blocks" if launch.blocks else told(launch.launch)
    return ", a launch a step" if isinstance(launch, by_steps.BySteps) else ""


def forward(device: Device, walk: Walk, way: str | None = None) -> Launch:
    """A call that fills `walk.state`, `walk.gates` and `walk.final`.

    way  of `ways.serial_ways`; by default the one that is measured, or the first
    """
    if way is None:
        way = serial_way(device, walk.size, "forward", partial(forward, device))
    by = partial(forward_in_blocks, device, walk)
    return _by_way(device, walk.size, "forward", way, by, partial(by_steps.forward, device, walk))


def _by_way(
    device: Device,
    size: WalkSize,
    verb: str,
    way: str,
    by_blocks: Callable[..., Launch],
    each_step: Callable[[], Launch],
) -> Launch:
    """The pass by a way; clusters that the device refuses at a launch are replaced by the next way."""
    if way == "blocks":
        return by_blocks()
    if way == "steps":
        return each_step()
    layout = best_layout(device, size, verb, int(way.removeprefix("clusters ")))
    if layout is None:
        raise DeviceError(f"{device.name}: no {way} run for {size.units} hidden units: take another way")
    others = [one for one in serial_ways(device, size, verb) if not one.startswith("clusters")]
    other = partial(_by_way, device, size, verb, others[0], by_blocks, each_step)
    return InClusters(by_blocks(kernel=cluster_kernel(size.cell, verb, layout)), layout, other)


def forward_in_blocks(device: Device, walk: Walk, kernel: Kernel | None = None) -> Launch:
    """The same by one launch, a block for each of some samples, or by a `kernel` of clusters."""
    return device.bind(
        kernel or kernels_of(walk.size.cell)["forward"],
        walk.projected,
        walk.weight_hh,
        walk.bias_hh,
        walk.unit,
        walk.initial,
        walk.lengths,
        walk.state,
        walk.gates,
        walk.final,
        *walk.size.scalars,
        walk.reverse,
    )


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

    gradient  (T, H, B), by the output of every step; None where there is none
    boundary  (ceil(T / chunk), P H, B), by the state at each chunk's end, from later steps
    delta     out, (T, cell.deltas * H, B), by `walk.projected`, the separate gates' recurrent sums and the
              unit parameters
    entering  out, (ceil(T / chunk), P H, B), by the state before each chunk

    way       of a whole sequence, chunk = T, as in `forward`; several chunks go by blocks
    """
    in_blocks = partial(backward_in_blocks, device, walk, gradient, boundary, chunk, delta, entering)
    if chunk < walk.size.steps:
        return in_blocks()

    def scratch(other: Walk, way: str) -> Launch:
        by_output, last, *results = scratch_backward(device, other)
        return backward(device, other, by_output, last, other.size.steps, results[0], results[1], way)

    if way is None:
        way = serial_way(device, walk.size, "backward", scratch)
    each_step = partial(by_steps.backward, device, walk, gradient, boundary, delta, entering)
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
    """The same by one launch, a block for each of some samples, or by a `kernel` of clusters; where there is
    a `wanted`, (1) int32 on the device, and it is 0 when the launch runs, nothing is done."""
    return device.bind(
        kernel or kernels_of(walk.size.cell)["backward"],
        walk.state,
        walk.gates,
        walk.initial,
        *walk.weights,
        walk.or_none(gradient),
        boundary,
        walk.lengths,
        device.empty(0, np.int32) if wanted is None else wanted,
        delta,
        entering,
        *walk.size.scalars,
        chunk,
        gradient is not None,
        walk.reverse,
        wanted is not None,
    )

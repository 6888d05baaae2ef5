"""The serial passes over time, forward and inside each chunk backward: one fused kernel each, or of a whole
sequence of wide states one launch of clusters, or a launch a step."""

from __future__ import annotations

from functools import partial

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.processors.models import model_of
from bppsa_cupy.processors.sizes import WalkSize
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import Kernel
from bppsa_cupy.timescan import by_steps, in_clusters
from bppsa_cupy.timescan.walk import Walk


def check_shared(device: Device, size: WalkSize) -> None:
    """Raise DeviceError, with the bytes needed and there, where a block of either pass takes more shared
    memory than the device has: before anything of a pass is launched."""
    names = ("steps", "hidden", "sets", "batch", "walks")
    sizes = {**dict(zip(names, size.scalars, strict=True)), "chunk": max(1, size.steps)}
    for direction in ("forward", "backward"):
        if not model_of(device).goes_by_steps(size, direction):
            kernel = kernels_of(size.cell)[direction]
            device.check_shared(kernel, kernel.launch(device.facts_of_launch(sizes, size.itemsize)))


def told(launch: Launch) -> str:
    """What a description of a serial pass says of its launches."""
    if isinstance(launch, in_clusters.InClusters):
        return f", by clusters of {launch.blocks} blocks" if launch.blocks else told(launch.launch)
    return ", a launch a step" if isinstance(launch, by_steps.BySteps) else ""


def forward(device: Device, walk: Walk) -> Launch:
    """A call that fills `walk.state`, `walk.gates` and `walk.final`, the way predicted to be the quickest."""
    in_blocks = partial(forward_in_blocks, device, walk)

    def other() -> Launch:
        if model_of(device).goes_by_steps(walk.size, "forward"):
            return by_steps.forward(device, walk)
        return in_blocks()

    return in_clusters.quickest(device, walk.size, "forward", in_blocks, other)


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
) -> Launch:
    """A call that goes back through every chunk of `chunk` steps, each from its own boundary.

    gradient  (T, H, B), by the output of every step; None where there is none
    boundary  (ceil(T / chunk), P H, B), by the state at each chunk's end, from later steps
    delta     out, (T, cell.deltas * H, B), by `walk.projected`, the separate gates' recurrent sums and the
              unit parameters
    entering  out, (ceil(T / chunk), P H, B), by the state before each chunk

    The whole sequence is one chunk of the linear pass: chunk = T. It goes by the way predicted to be the
    quickest.
    """
    in_blocks = partial(backward_in_blocks, device, walk, gradient, boundary, chunk, delta, entering)
    if chunk < walk.size.steps:
        return in_blocks()

    def other() -> Launch:
        if model_of(device).goes_by_steps(walk.size, "backward"):
            return by_steps.backward(device, walk, gradient, boundary, delta, entering)
        return in_blocks()

    return in_clusters.quickest(device, walk.size, "backward", lambda kernel: in_blocks(kernel=kernel), other)


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

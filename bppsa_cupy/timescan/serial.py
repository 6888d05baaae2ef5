"""The serial passes over time, forward and inside each chunk backward, as one fused kernel each."""

from __future__ import annotations

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.timescan.sizes import WalkSize
from bppsa_cupy.timescan.walk import Walk


def check_shared(device: Device, size: WalkSize) -> None:
    """Raise DeviceError, with the bytes needed and there, where a block of either pass takes more shared
    memory than the device has: before anything of a pass is launched."""
    sizes = {"steps": size.steps, "hidden": size.hidden, "batch": size.batch, "chunk": size.steps}
    for direction in ("forward", "backward"):
        kernel = size.cell.kernel(direction)
        device.check_shared(kernel, kernel.launch({**sizes, "itemsize": size.itemsize}))


def forward(device: Device, walk: Walk) -> Launch:
    """A call that fills `walk.state`, `walk.gates` and `walk.final`."""
    cell = walk.size.cell
    return device.bind(
        cell.kernel("forward"),
        walk.projected,
        walk.weight_hh,
        *(() if walk.bias_n is None else (walk.bias_n,)),
        walk.initial,
        walk.lengths,
        walk.state,
        *walk.kept,
        walk.final,
        *walk.size.scalars,
        *cell.flags,
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
    boundary  (ceil(T / chunk), S, B), by the state at each chunk's end, from later steps
    delta     out, (T, cell.deltas * H, B), by `walk.projected` (and the cell's separate rows)
    entering  out, (ceil(T / chunk), S, B), by the state before each chunk

    The whole sequence is one chunk of the linear pass: chunk = T.
    """
    cell = walk.size.cell
    return device.bind(
        cell.kernel("backward"),
        walk.state,
        *walk.kept,
        *walk.before,
        walk.weight_hh,
        walk.or_none(gradient),
        boundary,
        walk.lengths,
        delta,
        entering,
        *walk.size.scalars,
        chunk,
        gradient is not None,
        *cell.flags,
        walk.reverse,
    )

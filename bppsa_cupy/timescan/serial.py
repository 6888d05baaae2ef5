"""The serial passes over time, forward and inside each chunk backward, as one fused kernel each."""

from __future__ import annotations

from collections.abc import Callable

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.timescan.walk import Walk

Launch = Callable[[], None]


def forward(device: Device, walk: Walk) -> Launch:
    """A call that fills `walk.state`, `walk.gates` and `walk.final`."""
    kept = () if walk.gates is None else (walk.gates,)
    return device.bind(
        walk.cell.forward,
        walk.projected,
        walk.weight_hh,
        *(() if walk.bias_n is None else (walk.bias_n,)),
        walk.initial,
        walk.lengths,
        walk.state,
        *kept,
        walk.final,
        walk.steps,
        walk.hidden,
        walk.batch,
        *walk.cell.flags,
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
    delta     out, (T, cell.deltas * H, B), by `walk.projected` (and GRU's m)
    entering  out, (ceil(T / chunk), S, B), by the state before each chunk

    The whole sequence is one chunk of the linear pass: chunk = T.
    """
    kept = () if walk.gates is None else (walk.gates, walk.initial)
    none = walk.state.reshape(-1)[:0]
    return device.bind(
        walk.cell.backward,
        walk.state,
        *kept,
        walk.weight_hh,
        none if gradient is None else gradient,
        boundary,
        walk.lengths,
        delta,
        entering,
        walk.steps,
        walk.hidden,
        walk.batch,
        chunk,
        gradient is not None,
        *walk.cell.flags,
        walk.reverse,
    )

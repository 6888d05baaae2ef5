"""Walks of wide layers through few steps, forward and back, in blocks or by clusters, against the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from timescan_cases import placed
from tolerances import assert_close

from bppsa_cupy.cells import Cell, sigmoid
from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.kernel import Kernel
from bppsa_cupy.timescan import Walk, WalkSize, serial


def leaky(x: Any, u: Any, s: Any, p: Any) -> dict[str, Any]:
    """Three gates, two states of which either is carried beside W_hh, and a number a unit."""
    f, o = sigmoid(x.f + u.f + p.a * s.m), sigmoid(x.o + u.o)
    m = f * s.m + (1 - f) * (x.c + o * u.c)
    return {"h": o * m / (1 + m**2) + s.h / 4, "m": m}


OWN = Cell("leaky", gates=["f", "c", "o"], states=["h", "m"], parameters=["a"], step=leaky).form
CELLS = {**{name: FORMS[name] for name in ("rnn_tanh", "gru", "lstm")}, "leaky": OWN}


def make_walk(device: Device, cell: CellForm, hidden: int, heads: int, batch: int, reverse: bool) -> Walk:
    """A walk of random numbers, the same on every device, through 3 steps, or 1, or none."""
    rng, steps, units = np.random.default_rng([hidden, batch]), 3, hidden // heads

    def array(*shape: int, scale: float = 1.0) -> Any:
        return device.asarray((scale * rng.standard_normal(shape)).astype(np.float32))

    def of_walk(*shape: int) -> Any:
        return placed(device, rng.standard_normal(shape).astype(np.float32))

    def empty(*shape: int) -> Any:
        return device.empty_walk(shape, np.float32)

    return Walk(
        size=WalkSize(cell, steps, batch, hidden, 4, heads),
        reverse=reverse,
        weight_hh=array(heads, cell.gates * units, units, scale=units**-0.5),
        bias_hh=array(heads, cell.gates * units),
        unit=array(heads, cell.parameters * units),
        lengths=device.asarray(np.array([3, 1, 0, 2])[:batch]),
        initial=of_walk(cell.states * hidden, batch),
        projected=of_walk(steps, cell.gates * hidden, batch),
        state=empty(steps, cell.states * hidden, batch),
        gates=empty(steps, cell.kept * hidden, batch),
        final=empty(cell.states * hidden, batch),
    )


def passes(
    device: Device, walk: Walk, per_step: bool, chunk: int, kernels: Mapping[str, Kernel]
) -> list[np.ndarray]:
    """State, kept rows, final state, delta and entering gradients of a walk in blocks, or by `kernels`."""
    rng, size = np.random.default_rng(1), walk.size
    shape = (3, size.hidden, size.batch)
    gradient = placed(device, rng.standard_normal(shape).astype(np.float32)) if per_step else None
    ends = rng.standard_normal((size.chunks(chunk), *walk.initial.shape)).astype(np.float32)
    delta = device.empty_walk((3, size.cell.deltas * size.hidden, size.batch), np.float32)
    entering = device.empty_walk(ends.shape, np.float32)
    serial.forward_in_blocks(device, walk, kernels.get("forward"))()
    serial.backward_in_blocks(
        device, walk, gradient, placed(device, ends), chunk, delta, entering, kernel=kernels.get("backward")
    )()
    return [device.to_host(a) for a in (walk.state, walk.gates, walk.final, delta, entering)]


def assert_same(
    device: Device, form: CellForm, hidden: int, heads: int, batch: int, reverse: bool, per_step: bool,
    chunk: int, kernels: Mapping[str, Kernel] = {},
) -> None:  # fmt: skip
    """What `device` gives, by its own kernels or these, is what the host gives."""
    ours, wanted = (
        passes(one, make_walk(one, form, hidden, heads, batch, reverse), per_step, chunk, taken)
        for one, taken in ((device, kernels), (get_device("host"), {}))
    )
    names = ("state", "gates", "final", "delta", "entering")
    for name, found, expected in zip(names, ours, wanted, strict=True):
        assert_close(found, expected, length=64 * hidden, what=name)

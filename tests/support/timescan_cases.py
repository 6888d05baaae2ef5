"""Walks for tests of the scans over time, and PyTorch's gradients of them."""

from __future__ import annotations

import numpy as np
import torch
from marks import some
from recurrent_reference import spaces, step_of

from bppsa_cupy.cells import Cell
from bppsa_cupy.devices import Device
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.timescan import Walk, WalkSize, serial
from bppsa_cupy.timescan.chunked import TimeScan


def placed(device: Device, values: np.ndarray):
    """An array of walks, (..., rows, B), with these values."""
    array = device.empty_walk(values.shape, values.dtype)
    array[...] = device.asarray(values)
    return array


CELLS = {"tanh": FORMS["rnn_tanh"], "relu": FORMS["rnn_relu"], "gru": FORMS["gru"], "lstm": FORMS["lstm"]}
#: The cells as parameters of tests; long runs take "relu" too, whose frames are those of "tanh".
QUICK = some("tanh", "gru", "lstm", long=["relu"])


def make_walk(
    device: Device,
    cell: CellForm,
    steps: int,
    hidden: int,
    batch: int,
    *,
    dtype: str = "float64",
    radius: float = 0.9,
    size: float = 1.0,
    ragged: bool = False,
    reverse: bool = False,
    forward: bool = True,
) -> Walk:
    """A walk of random input, walked serially.

    radius  spectral radius of each gate's block of W_hh
    size    standard deviation of the projected input
    """
    rng = np.random.default_rng([steps, hidden, batch, int(ragged), int(reverse)])
    weight = rng.standard_normal((cell.gates, hidden, hidden))
    weight *= radius / np.abs(np.linalg.eigvals(weight)).max(axis=1)[:, None, None]
    bias = np.zeros((cell.gates, hidden))
    bias[list(cell.separate)] = 0.3 * rng.standard_normal((len(cell.separate), hidden))
    lengths = rng.integers(1, steps + 1, batch) if ragged else np.full(batch, steps)

    def array(*shape: int, scale: float = 1.0):
        return placed(device, (scale * rng.standard_normal(shape)).astype(dtype))

    def empty(rows: int):
        return device.empty_walk((steps, rows * hidden, batch), dtype)

    walk = Walk(
        size=WalkSize(cell, steps, batch, hidden, np.dtype(dtype).itemsize),
        reverse=reverse,
        weight_hh=device.asarray(weight.reshape(-1, hidden).astype(dtype)),
        bias_hh=device.asarray(bias.reshape(-1).astype(dtype)),
        unit=device.asarray(rng.standard_normal(cell.parameters * hidden).astype(dtype)),
        lengths=device.asarray(lengths.astype(np.int64)),
        initial=array(cell.states * hidden, batch, scale=0.5),
        projected=array(steps, cell.gates * hidden, batch, scale=size),
        state=empty(cell.states),
        gates=empty(cell.saved),
        final=device.empty_walk((cell.states * hidden, batch), dtype),
    )
    if forward:
        serial.forward(device, walk)()
    return walk


def random_walk(
    device: Device, size: WalkSize, reverse: bool = False, ragged: bool = False, dtype: str = "float32"
) -> Walk:
    """A walk of random numbers that nothing has walked, the same on every device; of any cell."""
    cell, steps, batch, hidden = size.cell, size.steps, size.batch, size.hidden
    rng = np.random.default_rng([steps, batch, hidden, ragged, reverse])

    def drawn(*shape: int, scale: float = 1.0):
        return device.asarray((scale * rng.standard_normal(shape)).astype(dtype))

    def of_walk(rows: int, *before: int):
        return placed(device, rng.standard_normal((*before, rows * hidden, batch)).astype(dtype))

    return Walk(
        size=size,
        reverse=reverse,
        weight_hh=drawn(cell.sums * hidden, hidden, scale=hidden**-0.5),
        bias_hh=drawn(cell.sums * hidden),
        unit=drawn(cell.parameters * hidden, scale=0.5),
        lengths=device.asarray(rng.integers(0 if ragged else steps, steps + 1, batch)),
        initial=of_walk(cell.states),
        projected=of_walk(cell.gates, steps),
        state=of_walk(cell.states, steps),
        gates=of_walk(cell.saved, steps),
        final=of_walk(cell.states),
    )


def make_gradients(device: Device, walk: Walk, per_step: bool):
    """The gradient by every step's output, or None, and the one by the last state."""
    rng = np.random.default_rng(5)
    dtype = walk.state.dtype
    shape = (walk.size.steps, walk.size.hidden, walk.size.batch)
    gradient = placed(device, rng.standard_normal(shape).astype(dtype)) if per_step else None
    return gradient, placed(device, rng.standard_normal(walk.initial.shape).astype(dtype))


def on_host(array) -> np.ndarray:
    """A NumPy array of the values of any device's array."""
    return np.asarray(array.get() if hasattr(array, "get") else array)


def _step(walk: Walk, projected, state, weight, bias):
    cell, hidden = Cell.built_in(walk.size.cell.name), walk.size.hidden
    moved = weight @ state[:hidden] + bias[:, None]
    kinds = spaces(cell, projected.split(hidden), moved.split(hidden), state.split(hidden), ())
    return torch.cat(step_of(cell)(*kinds))


def torch_gradients(walk: Walk, gradient, last):
    """Gradients by the projected input and by the initial state, by PyTorch in float64."""
    double = {
        name: torch.tensor(on_host(getattr(walk, name)), dtype=torch.float64)
        for name in ("projected", "initial", "weight_hh", "bias_hh")
    }
    projected, initial = double["projected"].requires_grad_(), double["initial"].requires_grad_()
    weight, bias = double["weight_hh"], double["bias_hh"]
    lengths = torch.tensor(on_host(walk.lengths))
    state, loss = initial, torch.zeros((), dtype=torch.float64)
    for s in range(walk.size.steps):
        t = walk.size.steps - 1 - s if walk.reverse else s
        inside = t < lengths
        state = torch.where(inside, _step(walk, projected[t], state, weight, bias), state)
        if gradient is not None:
            by_output = torch.tensor(on_host(gradient[t]))
            loss = loss + (torch.where(inside, state[: walk.size.hidden], 0) * by_output).sum()
    loss = loss + (state * torch.tensor(on_host(last))).sum()
    by_projected, by_initial = torch.autograd.grad(loss, (projected, initial))
    return by_projected.numpy(), by_initial.numpy()


def run_scan(device, walk, gradient, last, **how):
    """delta, entering, and the scan that made them."""
    delta = device.empty_walk(
        (walk.size.steps, walk.size.cell.deltas * walk.size.hidden, walk.size.batch), walk.state.dtype
    )
    entering = device.empty_walk(walk.final.shape, walk.state.dtype)
    scan = TimeScan(device, walk, gradient, last, delta, entering, **how)
    scan()
    return device.to_host(delta), device.to_host(entering), scan

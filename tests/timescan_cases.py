"""Walks for tests of the scans over time, and PyTorch's gradients of them."""

from __future__ import annotations

import numpy as np
import torch

from bppsa_cupy.devices import Device
from bppsa_cupy.timescan import GRU, LSTM, RNN_RELU, RNN_TANH, Cell, Walk, WalkSize, serial

CELLS = {"tanh": RNN_TANH, "relu": RNN_RELU, "gru": GRU, "lstm": LSTM}


def make_walk(
    device: Device,
    cell: Cell,
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
    lengths = rng.integers(1, steps + 1, batch) if ragged else np.full(batch, steps)

    def array(*shape: int, scale: float = 1.0):
        return device.asarray((scale * rng.standard_normal(shape)).astype(dtype))

    def empty(rows: int):
        return device.empty((steps, rows * hidden, batch), dtype)

    walk = Walk(
        size=WalkSize(cell, steps, batch, hidden, np.dtype(dtype).itemsize),
        reverse=reverse,
        weight_hh=device.asarray(weight.reshape(-1, hidden).astype(dtype)),
        bias_n=array(hidden, scale=0.3) if cell.separate else None,
        lengths=device.asarray(lengths.astype(np.int64)),
        initial=array(cell.states * hidden, batch, scale=0.5),
        projected=array(steps, cell.gates * hidden, batch, scale=size),
        state=empty(cell.states),
        gates=empty(cell.kept) if cell.kept else None,
        final=device.empty((cell.states * hidden, batch), dtype),
    )
    if forward:
        serial.forward(device, walk)()
    return walk


def make_gradients(device: Device, walk: Walk, per_step: bool):
    """The gradient by every step's output, or None, and the one by the last state."""
    rng = np.random.default_rng(5)
    dtype = walk.state.dtype
    shape = (walk.size.steps, walk.size.hidden, walk.size.batch)
    gradient = device.asarray(rng.standard_normal(shape).astype(dtype)) if per_step else None
    return gradient, device.asarray(rng.standard_normal((walk.size.state, walk.size.batch)).astype(dtype))


def _step(walk: Walk, projected, state, weight, bias_n):
    hidden = walk.size.hidden
    h = state[:hidden]
    if walk.size.cell.name == "rnn":
        return (torch.relu if walk.size.cell.relu else torch.tanh)(projected + weight @ h)
    moved = weight @ h
    if walk.size.cell.name == "gru":
        r, z = torch.sigmoid(projected[: 2 * hidden] + moved[: 2 * hidden]).split(hidden)
        n = torch.tanh(projected[2 * hidden :] + r * (moved[2 * hidden :] + bias_n[:, None]))
        return (1 - z) * n + z * h
    i, f, g, o = (projected + moved).split(hidden)
    c = torch.sigmoid(f) * state[hidden:] + torch.sigmoid(i) * torch.tanh(g)
    return torch.cat([torch.sigmoid(o) * torch.tanh(c), c])


def torch_gradients(walk: Walk, gradient, last):
    """Gradients by the projected input and by the initial state, by PyTorch in float64."""
    double = {
        name: torch.tensor(np.asarray(getattr(walk, name)), dtype=torch.float64)
        for name in ("projected", "initial", "weight_hh")
    }
    bias_n = None if walk.bias_n is None else torch.tensor(np.asarray(walk.bias_n), dtype=torch.float64)
    projected, initial = double["projected"].requires_grad_(), double["initial"].requires_grad_()
    lengths = torch.tensor(np.asarray(walk.lengths))
    state, loss = initial, torch.zeros((), dtype=torch.float64)
    for s in range(walk.size.steps):
        t = walk.size.steps - 1 - s if walk.reverse else s
        inside = t < lengths
        state = torch.where(inside, _step(walk, projected[t], state, double["weight_hh"], bias_n), state)
        if gradient is not None:
            loss = (
                loss + (torch.where(inside, state[: walk.size.hidden], 0) * torch.tensor(gradient[t])).sum()
            )
    loss = loss + (state * torch.tensor(last)).sum()
    by_projected, by_initial = torch.autograd.grad(loss, (projected, initial))
    return by_projected.numpy(), by_initial.numpy()

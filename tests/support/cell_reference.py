"""PyTorch's autograd of the same step as the oracle of layers of any cell."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import sympy
import torch
from tolerances import assert_close

import bppsa_cupy as bp


def slow(x, u, s, p):
    """Two states and a parameter, one gate's sum apart."""
    f = bp.cells.sigmoid(x.f + u.f + p.v * s.c)
    c = f * s.c + (1 - f) * sympy.tanh(x.c + f * u.c)
    return {"h": 0.9 * s.h + 0.1 * sympy.tanh(c), "c": c}


SLOW = bp.Cell("slow", gates=["f", "c"], states=["h", "c"], parameters=["v"], step=slow)


def slow_step(x, u, s, p):
    f = torch.sigmoid(x[0] + u[0] + p["v"] * s[1])
    c = f * s[1] + (1 - f) * torch.tanh(x[1] + f * u[1])
    return 0.9 * s[0] + 0.1 * torch.tanh(c), c


def ctrnn_step(x, u, s, p):
    return (s[0] + p["alpha"] * (torch.tanh(x[0] + u[0]) - s[0]),)


def peephole_step(x, u, s, p):
    i = torch.sigmoid(x[0] + u[0] + p["ci"] * s[1])
    c = torch.sigmoid(x[1] + u[1] + p["cf"] * s[1]) * s[1] + i * torch.tanh(x[2] + u[2])
    return torch.sigmoid(x[3] + u[3] + p["co"] * c) * torch.tanh(c), c


def mgu_step(x, u, s, p):
    f = torch.sigmoid(x[0] + u[0])
    return (s[0] + f * (torch.tanh(x[1] + f * u[1]) - s[0]),)


def ugrnn_step(x, u, s, p):
    g = torch.sigmoid(x[0] + u[0])
    return (g * s[0] + (1 - g) * torch.tanh(x[1] + u[1]),)


MAKES = {
    "slow": (lambda *sizes, **options: bp.CellLayer(SLOW, *sizes, **options), slow_step),
    "ctrnn": (bp.CTRNN, ctrnn_step),
    "peephole": (bp.PeepholeLSTM, peephole_step),
    "mgu": (bp.MGU, mgu_step),
    "ugrnn": (bp.UGRNN, ugrnn_step),
}


def walk_of_torch(step, values, suffix, x, lengths, states, parameters, reverse, first=None, hidden=None):
    """Every step's h, (B, T, H), by PyTorch; from the states `first`. Without W_hh there are no sums, and
    `hidden` is H."""
    hidden = hidden or values[f"weight_hh{suffix}"].shape[1]
    own = {name: values[f"{name}{suffix}"] for name in parameters}
    state = first or [torch.zeros(len(x), hidden, dtype=x.dtype) for _ in range(states)]
    outputs = [None] * x.shape[1]
    for t in reversed(range(x.shape[1])) if reverse else range(x.shape[1]):
        gates = x[:, t] @ values[f"weight_ih{suffix}"].T + values[f"bias_ih{suffix}"]
        sums = ()
        if f"weight_hh{suffix}" in values:
            sums = state[0] @ values[f"weight_hh{suffix}"].T + values[f"bias_hh{suffix}"]
            sums = sums.split(hidden, 1)
        new = step(gates.split(hidden, 1), sums, state, own)
        inside = (t < lengths)[:, None]
        state = [torch.where(inside, after, before) for after, before in zip(new, state, strict=True)]
        outputs[t] = torch.where(inside, state[0], torch.zeros_like(state[0]))
    return torch.stack(outputs, 1)


def in_blocks(weight_hh: torch.Tensor, heads: int) -> torch.Tensor:
    """(G H, h) of heads as (G H, H), with zeros beside the blocks."""
    rows, units = weight_hh.shape
    gates = weight_hh.reshape(-1, heads, units, units)
    return torch.cat([torch.block_diag(*gate) for gate in gates]).reshape(rows, heads * units)


def compare_with_autograd(
    net: bp.Sequential, step: Callable, batch: int, steps: int, ragged: bool, seed: int = 0
) -> None:
    """Outputs and all gradients of a network of one layer, of one direction, are autograd's in float64."""
    layer, rng = net.layers[0], np.random.default_rng(seed)
    x = rng.standard_normal((batch, steps, layer.input_size)).astype(net.dtype)
    by_output = rng.standard_normal((batch, steps, layer.hidden_size)).astype(net.dtype)
    lengths = rng.integers(1, steps + 1, batch) if ragged else np.full(batch, steps)
    lengths[rng.integers(batch)] = steps
    y = net.forward(x, lengths=lengths)
    by_input = net.backward(by_output, input_gradient=True)

    state = {name.removeprefix("0."): array for name, array in net.state_dict().items()}
    leaf = partial(torch.tensor, dtype=torch.float64, requires_grad=True)
    own, given = {name: leaf(array) for name, array in state.items()}, leaf(x)
    dense = {**own, "weight_hh_l0": in_blocks(own["weight_hh_l0"], layer.heads)}
    expected = walk_of_torch(
        step, dense, "_l0", given, torch.tensor(lengths), layer.cell.states, layer.unit_parameters, False
    )
    (expected * torch.tensor(by_output)).sum().backward()
    length = layer.hidden_size * steps
    assert_close(y, expected.detach().numpy(), length, what="output")
    assert_close(by_input, given.grad.numpy(), length, what="gradient by the input")
    for name, value in own.items():
        assert_close(net.gradients[f"0.{name}"], value.grad.numpy(), length * batch, what=name)

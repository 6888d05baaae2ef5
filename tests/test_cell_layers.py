"""Recurrent layers of any cell: gradients equal PyTorch's autograd of the same step, by every method."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
import torch

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


def walk_of_torch(step, values, suffix, x, lengths, states, parameters, reverse):
    """Every step's h, (B, T, H), by PyTorch."""
    hidden = values[f"weight_hh{suffix}"].shape[1]
    own = {name: values[f"{name}{suffix}"] for name in parameters}
    state = [torch.zeros(len(x), hidden, dtype=x.dtype) for _ in range(states)]
    outputs = [None] * x.shape[1]
    for t in reversed(range(x.shape[1])) if reverse else range(x.shape[1]):
        gates = x[:, t] @ values[f"weight_ih{suffix}"].T + values[f"bias_ih{suffix}"]
        sums = state[0] @ values[f"weight_hh{suffix}"].T + values[f"bias_hh{suffix}"]
        new = step(gates.split(hidden, 1), sums.split(hidden, 1), state, own)
        inside = (t < lengths)[:, None]
        state = [torch.where(inside, after, before) for after, before in zip(new, state, strict=True)]
        outputs[t] = torch.where(inside, state[0], torch.zeros_like(state[0]))
    return torch.stack(outputs, 1)


@pytest.mark.parametrize("method", ["bp", "blelloch"])
@pytest.mark.parametrize("name", MAKES)
def test_a_layer_of_any_cell_agrees_with_autograd(name: str, method: str, rng: np.random.Generator) -> None:
    make, step = MAKES[name]
    layer = make(3, 5, num_layers=2, bidirectional=True)
    net = bp.Sequential([layer, bp.Linear(10, 2)], (9, 3), dtype="float64")
    x, lengths = rng.standard_normal((4, 9, 3)), np.array([9, 1, 6, 9])
    gradient = rng.standard_normal((4, 9, 2))
    y = net.forward(x, lengths=lengths)
    net.backward(gradient, method=method)

    values = {key: torch.tensor(value, requires_grad=True) for key, value in net.state_dict().items()}
    own = {key.removeprefix("0."): value for key, value in values.items()}
    current, ends = torch.tensor(x), torch.tensor(lengths)
    for number in range(2):
        sides = [
            walk_of_torch(
                step,
                own,
                f"_l{number}{end}",
                current,
                ends,
                layer.cell.states,
                layer.unit_parameters,
                bool(end),
            )
            for end in ("", "_reverse")
        ]
        current = torch.cat(sides, 2)
    expected = current @ values["1.weight"].T + values["1.bias"]
    (expected * torch.tensor(gradient)).sum().backward()
    np.testing.assert_allclose(y, expected.detach().numpy(), rtol=1e-11, atol=1e-12)
    for key, value in values.items():
        np.testing.assert_allclose(
            net.gradients[key], value.grad.numpy(), rtol=1e-10, atol=1e-11, err_msg=key
        )


def test_jacobians_of_a_cell_of_ones_own_are_finite_differences(rng: np.random.Generator) -> None:
    net = bp.Sequential([bp.CellLayer(SLOW, 2, 3, outputs="last")], (1, 2), dtype="float64")
    x, start, epsilon = rng.standard_normal((1, 1, 2)), 0.3 * rng.standard_normal(6), 1e-6

    def after(state: np.ndarray) -> np.ndarray:
        parts = tuple(np.ascontiguousarray(part.reshape(1, 1, 3)) for part in np.split(state, 2))
        return np.concatenate([np.asarray(part).reshape(-1) for part in net[0](x, parts)[1]])

    net.forward(x, states=tuple(part.reshape(1, 1, 3) for part in np.split(start, 2)))
    (record,) = net.transposed_jacobians()
    dense = record.to_scipy(0).toarray()
    numeric = [
        (after(start + epsilon * row) - after(start - epsilon * row)) / (2 * epsilon) for row in np.eye(6)
    ]
    np.testing.assert_allclose(dense, numeric, rtol=1e-7, atol=1e-9)


def test_a_cell_that_is_none_is_refused() -> None:
    with pytest.raises(bp.ShapeError, match=r"CellLayer got cell of str: it takes a bp\.Cell"):
        bp.CellLayer("gru", 3, 5)

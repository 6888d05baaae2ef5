"""Recurrent layers of any cell: gradients equal PyTorch's autograd of the same step, by every method."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cell_reference import MAKES, SLOW, walk_of_torch
from marks import some

import bppsa_cupy as bp


@pytest.mark.parametrize("method", some("bp", long=["blelloch"]))
@pytest.mark.parametrize("name", some("slow", long=[name for name in MAKES if name != "slow"]))
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

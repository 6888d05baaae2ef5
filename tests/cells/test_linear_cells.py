"""Linear cells of one's own: their passes beside the dense way's numbers, and what is refused."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import sympy
import torch
from recurrent_reference import leaf, walk

import bppsa_cupy as bp
import bppsa_cupy.torch as bt
from bppsa_cupy.cells import sigmoid, tanh


def gated(x, u, s, p):
    f = sigmoid(x.f)
    c = s.c * f * p.q + x.c * (1 - f)
    return {"h": sigmoid(x.o) * tanh(c), "c": c}


def cell_of(step=gated, **options):
    names = {"gates": ["c", "f", "o"], "states": ["h", "c"], "parameters": ["q"], "recurrent": []}
    return bp.Cell("gated", step=step, **{**names, **options})


def test_a_layer_and_its_module_walk_the_step() -> None:
    layer, rng = bp.CellLayer(cell_of(), 3, 4), np.random.default_rng(0)
    assert isinstance(layer, bp.LinearCellLayer) and "weight_hh_l0" not in layer.parameter_shapes()
    parameters = {name: rng.standard_normal(shape) for name, shape in layer.parameter_shapes().items()}
    x, lengths = rng.standard_normal((3, 9, 3)), np.array([9, 1, 5])
    y, saved = bp.functional.forward(layer, parameters, x, lengths=lengths)
    leaves, inputs = {name: leaf(value) for name, value in parameters.items()}, leaf(x)
    zeros = [torch.zeros(3, 4, dtype=torch.float64) for _ in range(2)]
    wanted, ends = walk(cell_of(), leaves, "_l0", inputs, torch.tensor(lengths), zeros)
    np.testing.assert_allclose(y, wanted.detach(), atol=1e-13)
    np.testing.assert_allclose(saved.states[0], ends[1].detach(), atol=1e-13)
    weights = rng.standard_normal(y.shape)
    (wanted * torch.tensor(weights)).sum().backward()
    gradients = bp.functional.vjp(saved, weights)
    np.testing.assert_allclose(gradients.input, inputs.grad, atol=1e-12)
    for name, value in leaves.items():
        np.testing.assert_allclose(gradients.parameters[name], value.grad, atol=1e-12, err_msg=name)
    module = bt.LinearCellLayer(cell_of(), 3, 4, batch_first=True, dtype=torch.float64)
    module.load_state_dict({name: torch.tensor(value) for name, value in parameters.items()})
    alone, _ = bp.functional.forward(layer, parameters, x)
    np.testing.assert_allclose(module(torch.tensor(x))[0].detach(), alone, atol=1e-13)


def test_cells_and_layers_are_copied_and_pickled() -> None:
    assert pickle.loads(pickle.dumps(cell_of())).digest == cell_of().digest
    for cell in (cell_of(), bp.Cell.built_in("gru")):
        layer = bp.CellLayer(cell, 3, 4)
        assert repr(copy.deepcopy(layer)) == repr(copy.copy(layer)) == repr(layer)
    assert repr(cell_of()).endswith("parameters=['q'], recurrent=[])")


STEPS = {
    "reads no state": lambda x, u, s, p: {"h": x.o * p.q, "c": x.f + x.c},
    "reads a recurrent sum": lambda x, u, s, p: {"h": x.o, "c": s.c * x.f + u.c * p.q},
    "has two states": lambda x, u, s, p: {"h": s.h * x.o, "c": s.c * x.f + x.c * p.q},
    "puts out what reads the former state": lambda x, u, s, p: {"h": s.c * x.o * p.q, "c": s.c * x.f + x.c},
    "is not affine": lambda x, u, s, p: {"h": x.o * p.q, "c": s.c**2 * x.f + x.c},
    "jumps": lambda x, u, s, p: {"h": x.o * p.q, "c": s.c * x.f + sympy.sign(s.c) * x.c},
    "is affine in parts": lambda x, u, s, p: {"h": x.o * p.q, "c": sympy.Max(s.c, x.f) + x.c},
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_that_are_no_linear_ones_are_refused(name: str) -> None:
    with pytest.raises(bp.CellError, match="cell 'gated'"):
        cell_of(STEPS[name])


def test_gates_are_recurrent_by_name() -> None:
    def step(x, u, s, p):
        return {"h": s.h * sigmoid(x.c + u.c) + tanh(x.f) + x.o * u.o * p.q, "c": s.c + x.o}

    some = cell_of(step, recurrent=["o", "c"])
    assert some.recurrent == ("c", "o") and repr(some).endswith("recurrent=['c', 'o'])")
    assert pickle.loads(pickle.dumps(cell_of())).recurrent == ()
    shapes = bp.CellLayer(some, 3, 4).parameter_shapes()
    assert shapes["weight_hh_l0"] == (8, 4) and shapes["bias_hh_l0"] == (8,)
    with pytest.raises(
        bp.CellError, match=r"has recurrent=\['q'\], but its gates are c, f, o: use only names"
    ):
        cell_of(step, recurrent=["q"])
    with pytest.raises(bp.CellError, match=r"reads u\.c, but the recurrent gates of the cell are o"):
        cell_of(step, recurrent=["o"])

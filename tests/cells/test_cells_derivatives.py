"""What follows from a cell's step: values and gradients as PyTorch's, the Jacobian's coefficients, texts."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cell_cases import FORMULAS, drawn_cells, every_function_cell
from hypothesis import given, settings
from tolerances import assert_close

from bppsa_cupy import CellError, check_cell
from bppsa_cupy.cells import Cell
from bppsa_cupy.cells.definitions import DEFINITIONS
from bppsa_cupy.cells.probe import Points, probe_points

BUILT_IN = list(DEFINITIONS)


def tensors(names, values):
    return SimpleNamespace(
        **{name: torch.tensor(value, requires_grad=True) for name, value in zip(names, values, strict=True)}
    )


def assert_is_formula(cell: Cell, formula, points: Points) -> None:
    """The forward function, gradients and Jacobian of a cell are those of a formula under autograd."""
    form, functions = cell.form, cell.form.functions
    x, u, s = (
        tensors(*pair)
        for pair in ((cell.gates, points.x), (cell.gates, points.u), (cell.states, points.before))
    )
    p = tensors(cell.parameters, points.p)
    expected = formula(x, u, s, p)
    after, kept = functions.forward(*points)
    assert (len(after), len(kept)) == (form.states, form.kept)
    a = functions.coefficients(kept, after, points.before, points.p)
    assert len(a) == form.coefficients
    w = probe_points(form, points.x[0].size, seed=7).x
    leaves = [vars(kind) for kind in (x, u, s, p)]
    for row in range(form.states):
        assert_close(after[row] + 0 * points.x[0], expected[row].detach().numpy(), 16)
        flat = [leaf for kind in leaves for leaf in kind.values()]
        gradients = iter(
            torch.autograd.grad(
                expected[row].sum(), flat, retain_graph=True, allow_unused=True, materialize_grads=True
            )
        )
        by = [[next(gradients).numpy() for _ in kind] for kind in leaves]
        g = tuple(np.full_like(points.x[0], place == row) for place in range(form.states))
        by_x, by_u, by_before, by_p = functions.backward(g, kept, after, points.before, points.p)
        for found, wanted in zip((by_x, by_before, by_p), (by[0], by[2], by[3]), strict=True):
            for one, other in zip(found, wanted, strict=True):
                assert_close(one + 0 * other, other, 64, scale=1 + np.abs(other).max())
        for place, gate in enumerate(form.separate):
            assert_close(by_u[place] + 0 * by[1][gate], by[1][gate], 64, scale=1 + np.abs(by[1][gate]).max())
        for gate in set(range(form.gates)) - set(form.separate):
            assert_close(by[1][gate], by[0][gate], 64, scale=1 + np.abs(by[0][gate]).max())
        entered = functions.enter(a, g)
        through = sum(one * other for one, other in zip(functions.entry(a, w), entered, strict=True))
        wanted = sum(one * other for one, other in zip(w, by[1], strict=True))
        assert_close(through, wanted, 64, scale=1 + np.abs(wanted).max())
        for found, other in zip(functions.carry(a, entered), by[2], strict=True):
            assert_close(found + 0 * other, other, 64, scale=1 + np.abs(other).max())


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_cells_are_their_formulas(name: str) -> None:
    cell = Cell.built_in(name)
    assert_is_formula(cell, FORMULAS[name], probe_points(cell.form, 33))


@settings(max_examples=12)
@given(drawn_cells())
def test_drawn_cells_are_their_formulas(drawn) -> None:
    cell = drawn.cell()
    assert_is_formula(cell, drawn.formula, probe_points(cell.form, 5))
    check_cell(cell)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_cells_pass_the_check(name: str) -> None:
    report = check_cell(Cell.built_in(name))
    assert report.forward < 1e-14 and report.vjp < 1e-8 and report.coefficients < 1e-14


def test_a_cell_of_every_function_passes_the_check() -> None:
    cell = every_function_cell()
    assert check_cell(cell).vjp < 1e-8
    assert cell.form.separate == (1,) and cell.form.dense == ((0, 0), (0, 1))


@pytest.mark.parametrize(
    "broken, message",
    [
        ("forward", "forward function of h differs from the step"),
        ("backward", r"gradient of new h by x\[0\] differs from finite differences"),
        ("coefficients", "Jacobian of new h through W_hh differs from the gradients"),
        ("carry", r"Jacobian of new h by s\[0\] differs from the gradients"),
    ],
)
def test_the_check_sees_a_wrong_function(broken: str, message: str) -> None:
    cell = Cell.built_in("gru")
    right = getattr(cell.form.functions, broken)

    def wrong(*arguments):
        first, *rest = right(*arguments)
        return ((first[0] * 1.01, *first[1:]), *rest) if isinstance(first, tuple) else (first * 1.01, *rest)

    functions = dataclasses.replace(cell.form.functions, **{broken: wrong})
    cell._form = dataclasses.replace(cell.form, functions=functions)
    with pytest.raises(CellError, match=message):
        check_cell(cell)


def test_relu_keeps_nan_and_has_no_gradient_at_0() -> None:
    functions = Cell.built_in("rnn_relu").form.functions
    x = (np.array([np.nan, 0.0, -1.0, 2.0]),)
    (after, *_), kept = functions.forward(x, (np.zeros(4),), (np.zeros(4),), ())
    assert np.isnan(after[0]) and after[1:].tolist() == [0, 0, 2]
    (by_x,), *_ = functions.backward((np.ones(4),), kept, (after,), (np.zeros(4),), ())
    assert by_x[1:].tolist() == [0, 0, 1]

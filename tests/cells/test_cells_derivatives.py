"""What follows from a cell's step: values and gradients as PyTorch's, and the Jacobian's coefficients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cell_cases import Points, drawn_steps, every_function_cell, probe_points
from emulator.build import compiler
from hypothesis import given, settings
from nvrtc import measure, nvrtc
from recurrent_reference import leaf, spaces, step_of
from tolerances import assert_close

from bppsa_cupy.cells import Cell
from bppsa_cupy.cells import cell as steps
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import Variant

BUILT_IN = list(steps.BUILT_IN)


def assert_is_step(cell: Cell, points: Points) -> None:
    """The forward function, gradients and Jacobian of a cell are those of its step under autograd."""
    form, functions = cell.form, cell.form.functions
    leaves = [[leaf(value) for value in kind] for kind in points]
    expected = step_of(cell)(*spaces(cell, *leaves))
    after, saved = functions.forward(*points)
    assert (len(after), len(saved)) == (form.states, form.saved)
    a = functions.coefficients(saved, after, points.before, points.p)
    assert len(a) == form.coefficients
    w = probe_points(form, points.x[0].size, seed=7).x
    for row in range(form.states):
        assert_close(after[row] + 0 * points.x[0], expected[row].detach().numpy(), 16)
        flat = [value for kind in leaves for value in kind]
        gradients = iter(
            torch.autograd.grad(
                expected[row].sum(), flat, retain_graph=True, allow_unused=True, materialize_grads=True
            )
        )
        by = [[next(gradients).numpy() for _ in kind] for kind in leaves]
        g = tuple(np.full_like(points.x[0], place == row) for place in range(form.states))
        by_x, by_u, by_before, by_p = functions.backward(g, saved, after, points.before, points.p)
        entered = functions.enter(a, g)
        through = sum(left * right for left, right in zip(functions.entry(a, w), entered, strict=True))
        pairs = [*zip((*by_x, *by_before, *by_p), (*by[0], *by[2], *by[3]), strict=True)]
        pairs += [(by_u[place], by[1][gate]) for place, gate in enumerate(form.separate)]
        pairs += [(by[1][g], by[0][g]) for g in set(range(form.gates)) - set(form.separate)]
        pairs += [(through, sum(left * right for left, right in zip(w, by[1], strict=True)))]
        pairs += zip(functions.carry(a, entered), by[2], strict=True)
        for actual, wanted in pairs:
            assert_close(actual + 0 * wanted, wanted, 64, scale=1 + np.abs(wanted).max())


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_cells_are_their_formulas(name: str) -> None:
    cell = Cell.built_in(name)
    assert_is_step(cell, probe_points(cell.form, 33))


@settings(max_examples=8)
@given(drawn_steps())
def test_drawn_cells_are_their_steps(drawn) -> None:
    cell = drawn.cell()
    assert_is_step(cell, probe_points(cell.form, 5))


@pytest.mark.skipif(nvrtc() is None or compiler() is None, reason="NVRTC is missing")
def test_a_cell_of_every_function_compiles_for_a_gpu() -> None:
    cell, variant = every_function_cell(), Variant()
    assert cell.form.separate == (1,) and cell.form.dense == ((0, 0), (0, 1))
    for verb, kernel in kernels_of(cell.form).items():
        if verb in ("forward_step", "backward_step"):
            assert not measure(kernel.source(variant), kernel.name, variant, "sm_80").spill_bytes


def test_relu_keeps_nan_and_has_no_gradient_at_0() -> None:
    functions = Cell.built_in("rnn_relu").form.functions
    x = (np.array([np.nan, 0.0, -1.0, 2.0]),)
    (after, *_), saved = functions.forward(x, (np.zeros(4),), (np.zeros(4),), ())
    assert np.isnan(after[0]) and after[1:].tolist() == [0, 0, 2]
    (by_x,), *_ = functions.backward((np.ones(4),), saved, (after,), (np.zeros(4),), ())
    assert by_x[1:].tolist() == [0, 0, 1]

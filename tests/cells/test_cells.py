"""Definitions of cells: digests, generated texts, and what runs without SymPy."""

from __future__ import annotations

import os
import subprocess
import sys

import cell_cases
import numpy as np
import sympy

from bppsa_cupy.cells import Cell, ctrnn
from bppsa_cupy.raw_kernels.cells import FORMS


def leaky(**changes) -> Cell:
    given = {"gates": ["h"], "states": ["h"], "step": lambda x, u, s, p: {"h": sympy.tanh(x.h + u.h)}}
    return Cell(**{"name": "leaky", **given, **changes})


def test_equal_cells_have_equal_digests_and_functions() -> None:
    assert leaky().digest == leaky().digest != leaky(step=lambda x, u, s, p: x.h + u.h).digest
    assert leaky().form.functions is leaky(name="other").form.functions


def test_a_fixed_leak_is_a_cell_of_its_own() -> None:
    fixed, learnt = ctrnn(0.1), ctrnn()
    x, u, s = (np.array([0.3]),), (np.array([-0.8]),), (np.array([1.5]),)
    expected = 0.9 * 1.5 + 0.1 * np.tanh(-0.5)
    np.testing.assert_allclose(fixed.form.functions.forward(x, u, s, ())[0][0], expected)
    np.testing.assert_allclose(learnt.form.functions.forward(x, u, s, (np.array([0.1]),))[0][0], expected)
    assert (fixed.name, learnt.form) == ("ctrnn_0_1", FORMS["ctrnn"])


def test_digests_of_cells_are_those_of_every_process() -> None:
    code = "import cell_cases; print(cell_cases.every_function_cell().digest)"
    done = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.path.dirname(cell_cases.__file__)},
        ).stdout
        for seed in ("1", "123")
    ]  # fmt: skip
    assert done == [f"{cell_cases.every_function_cell().digest}\n"] * 2


def test_built_in_cells_run_without_sympy() -> None:
    code = """
import sys
sys.modules["sympy"] = None
import numpy as np
import bppsa_cupy as bp
from bppsa_cupy.cells.definitions import DEFINITIONS
for name in DEFINITIONS:
    cell = bp.Cell.built_in(name)
    numbers = [(np.ones(2),) * count for count in (cell.form.gates, cell.form.gates, cell.form.states, 3)]
    cell.form.functions.forward(*numbers)
    assert len(cell.digest) == 64
for call in (lambda: bp.Cell("own", gates=["h"], states=["h"], step=None), lambda: bp.check_cell(cell)):
    try:
        call()
    except bp.CellError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.splitlines() == [
        "cell 'own' is defined by its step, which takes SymPy: pip install sympy",
        "check_cell('peephole_lstm') compares with the step, which takes SymPy: pip install sympy",
    ]

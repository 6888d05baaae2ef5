"""Definitions of cells: digests, generated texts, and what runs without SymPy."""

from __future__ import annotations

import os
import subprocess
import sys

import cell_cases
import pytest
import sympy

from bppsa_cupy.cells import Cell


def leaky(**changes) -> Cell:
    defaults = {"gates": ["h"], "states": ["h"], "step": lambda x, u, s, p: {"h": sympy.tanh(x.h + u.h)}}
    return Cell(**{"name": "leaky", **defaults, **changes})


def test_equal_cells_have_equal_digests_and_functions() -> None:
    assert leaky().digest == leaky().digest != leaky(step=lambda x, u, s, p: x.h + u.h).digest
    assert leaky().form.functions is leaky(name="other").form.functions


@pytest.mark.long
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
from bppsa_cupy.cells.cell import BUILT_IN
for name in BUILT_IN:
    cell = bp.Cell.built_in(name)
    numbers = [(np.ones(2),) * count for count in (cell.form.gates, cell.form.gates, cell.form.states, 3)]
    cell.form.functions.forward(*numbers)
    assert len(cell.digest) == 64
try:
    bp.Cell("own", gates=["h"], states=["h"], step=None)
except bp.CellError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert "pip install sympy" in done.stdout

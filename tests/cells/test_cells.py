"""Definitions of cells: what is refused, generated texts, and what runs without SymPy."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import sympy

import bppsa_cupy as bp
from bppsa_cupy.cells import Cell, ctrnn
from bppsa_cupy.cells.definitions import DEFINITIONS, LINEAR_DEFINITIONS
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.kernel import FOLDER
from bppsa_cupy.raw_kernels.linear_cells import LINEAR_FORMS


def leaky(**changes) -> Cell:
    given = {"gates": ["h"], "states": ["h"], "step": lambda x, u, s, p: {"h": sympy.tanh(x.h + u.h)}}
    return Cell(**{"name": "leaky", **given, **changes})


WRONG_NAMES = [
    ({"name": "a b"}, "a cell's name is 'a b': it takes an identifier"),
    ({"gates": ["1h"]}, "one of its gates is '1h': it takes an identifier"),
    ({"parameters": ["lambda"]}, "one of its parameters is 'lambda': it takes an identifier"),
    ({"gates": "h"}, r"gates is the string 'h', it takes a list of names: gates=\['h'\]"),
    ({"recurrent": [np.ones(3)]}, r"recurrent names array.*: it takes a list of names: recurrent=\['h'\]"),
    ({"gates": []}, r"has no gates: name at least one, gates=\['h'\]"),
    ({"states": []}, "has no states: name at least one"),
    ({"states": ["h", "h"]}, "has states 'h', 'h': 'h' is there twice"),
    ({"gates": ["h", "z"]}, "reads neither x.z nor u.z; take 'z' from its gates"),
    ({"parameters": ["q"]}, "does not read p.q; take 'q' from its parameters"),
]

k = sympy.Symbol("k")

WRONG_STEPS = [
    (lambda x, u, s, p: x.z, "its step reads x.z, but its gates are h"),
    (lambda x, u, s, p: p.q, "its step reads p.q, but its parameters are none"),
    (lambda x, u, s, p: {"c": x.h}, "has states h, its step sets c: set 'h' too"),
    (lambda x, u, s, p: {"h": x.h, "c": x.h}, "has states h, its step sets h, c: add 'c' to its states"),
    (lambda x, u, s, p: (x.h, x.h), "has 1 states, h, its step gives 2"),
    (lambda x, u, s, p: x.h[0], r"\('Symbol' object is not subscriptable\); make it of SymPy's functions"),
    (lambda x, u, s, p: np.tanh(x.h), "make it of SymPy's functions of single x, u, s and p"),
    (
        lambda x, u, s, p: math.tanh(x.h),
        r"\(Cannot convert expression to float\); make it of SymPy's functions",
    ),
    (lambda x, u, s, p: x.h if x.h > 0 else 0, "truth value of Relational.* Piecewise in place of `if`"),
    (lambda x, u, s, p: "x.h", "its new h is 'x.h', no SymPy expression"),
    (lambda x, u, s, p: None, "its new h is None, no SymPy expression"),
    (lambda x, u, s, p: x.h > 0, "its new h is x.h > 0, it takes one number a unit"),
    (lambda x, u, s, p: sympy.Matrix([x.h]), "it takes one number a unit"),
    (lambda x, u, s, p: x.h * k, r"its new h = k\*x.h holds k, which is no x, u, s or p"),
    (
        lambda x, u, s, p: x.h * sympy.IndexedBase("w")[1],
        r"its new h = x.h\*w\[1\] holds w, which is no x, u",
    ),
    (
        lambda x, u, s, p: sympy.MatrixSymbol("W", 2, 2)[0, 1] + x.h,
        r"its new h = x.h \+ W\[0, 1\] holds W, which",
    ),
    (lambda x, u, s, p: sympy.Sum(x.h, (k, 0, 3)), r"its new h = Sum\(x.h, .* is not elementwise"),
    (
        lambda x, u, s, p: sympy.Function("f")(x.h),
        r"its new h = f\(x.h\) is not elementwise, .* it holds f\(x.h\)",
    ),
    (lambda x, u, s, p: sympy.gamma(x.h), r"not in functions that kernels know: it holds gamma\(x.h\)"),
    (lambda x, u, s, p: x.h * sympy.I, r"its new h = I\*x.h holds the number I: it takes finite real ones"),
    (
        lambda x, u, s, p: x.h * float("nan"),
        "its new h = nan holds the number nan: it takes finite real ones",
    ),
    (lambda x, u, s, p: x.h + float("inf"), "its new h = oo holds the number oo"),
    (
        lambda x, u, s, p: sympy.Piecewise((x.h, x.h > 0)),
        r"nothing where no condition holds: add \(…, True\)",
    ),
    (
        lambda x, u, s, p: x.h / s.h,
        r"new h = x.h/s.h\): its new h is inf at x.h = .*, s.h = 0; keep it finite",
    ),
    (
        lambda x, u, s, p: x.h + sympy.sqrt(sympy.Abs(s.h)),
        r"the derivative of its new h by s.h is (inf|nan) at x.h = .*, s.h = 0; keep it finite there",
    ),
]


def test_parameters_are_probed_too() -> None:
    with pytest.raises(
        bp.CellError, match=r"\(new h = .*log\(p.q - 1\)\): its new h is nan at .*, p.q = 0\."
    ):
        leaky(parameters=["q"], step=lambda x, u, s, p: x.h + sympy.log(p.q - 1))


@pytest.mark.parametrize("changes, message", WRONG_NAMES)
def test_wrong_names_are_refused(changes, message) -> None:
    with pytest.raises(bp.CellError, match=message):
        leaky(**changes)


@pytest.mark.parametrize("step, message", WRONG_STEPS)
def test_wrong_steps_are_refused_with_the_expression(step, message) -> None:
    with pytest.raises(bp.CellError, match=f"cell 'leaky'.*{message}"):
        leaky(step=step)


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


@pytest.mark.parametrize("alpha", [0, -0.1, 1.5, float("nan")])
def test_a_leak_outside_of_0_to_1_is_refused(alpha) -> None:
    with pytest.raises(
        bp.CellError, match=re.escape(f"ctrnn got alpha={alpha!r}: it takes a leak in (0, 1]")
    ):
        ctrnn(alpha)


def test_texts_of_built_in_cells_are_those_of_their_definitions(tmp_path) -> None:
    # Another order of hashes than this process has.
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    command = [sys.executable, "-m", "bppsa_cupy.cells.generate", str(tmp_path)]
    subprocess.run(command, env=environment, check=True)
    made = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.glob("*/*.*")}
    kept = {
        str(path.relative_to(FOLDER)): path.read_text()
        for room in ("cells", "linear_cells")
        for path in (FOLDER / room).glob("*.*")
        if path.stem != "__init__"
    }
    assert made == kept, "run python -m bppsa_cupy.cells.generate"
    assert list(FORMS) == sorted(DEFINITIONS)
    assert list(LINEAR_FORMS) == sorted(LINEAR_DEFINITIONS)


def test_built_in_cells_run_without_sympy() -> None:
    code = """
import sys
sys.modules["sympy"] = None
import numpy as np
import bppsa_cupy as bp
from bppsa_cupy.cells.definitions import DEFINITIONS, LINEAR_DEFINITIONS
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


# ---- what is kept ----

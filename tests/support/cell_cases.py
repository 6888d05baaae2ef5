"""Cells that tests define: with some recurrent gates or all, of every function, and drawn ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import sympy
from hypothesis import strategies as st

import bppsa_cupy as bp
from bppsa_cupy.cells import relu, sigmoid

tanh = sympy.tanh


def partly(x, u, s, p):
    """A GRU whose update gate reads the input alone; the candidate's sum stands apart."""
    z, r = sigmoid(x.z), sigmoid(x.r + u.r)
    n = tanh(x.n + r * u.n)
    return {"h": n + z * (s.h - n)}


def forgetful(x, u, s, p):
    """An LSTM of which the first and the last gate alone are recurrent."""
    i, f, o = sigmoid(x.i + u.i), sigmoid(x.f), sigmoid(x.o + u.o)
    c = f * s.c + i * tanh(x.g)
    return {"h": o * tanh(c), "c": c}


def slow(x, u, s, p):
    """Two states and a parameter, one gate's sum apart."""
    f = sigmoid(x.f + u.f + p.v * s.c)
    c = f * s.c + (1 - f) * tanh(x.c + f * u.c)
    return {"h": 0.9 * s.h + 0.1 * tanh(c), "c": c}


def mixed(x, u, s, p):
    """All that a form may have: a separate gate, unit parameters, states that meet without W_hh."""
    f = sigmoid(x.f + u.f)
    c = f * s.c + (1 - f) * tanh(x.v + p.v * u.v) + p.h * s.h
    return {"h": f * c, "c": c}


def every_function(x, u, s, p):
    """Every function that kernels know; finite for |x|, |u|, |s| that are not huge."""
    a, b = x.a + u.a, x.b * u.b
    low = sympy.Max(sympy.Min(a, 2), b) + relu(b)
    wave = sympy.sin(a) * sympy.cos(b) + sympy.exp(-(b**2)) + sympy.log(2 + s.h**2)
    root = sympy.sqrt(1 + a**2) + (1 + b**2) ** sympy.Rational(-3, 2) + 1 / (2 + s.c**2) ** 2
    branch = sympy.Piecewise(
        (tanh(a) * p.q, sympy.And(s.h > 0, b < 1)),
        (sympy.Abs(b) / 3, sympy.Or(a >= 0, s.c > 1)),
        (s.c, True),
    )
    c = sigmoid(low) * s.c + wave
    return {"h": root * branch + sympy.sign(a) * c - sympy.sqrt(2) * sympy.tanh(b) / 7, "c": c}


def cell(step: Any, gates: str, states: str, parameters: str = "", recurrent: str | None = None) -> bp.Cell:
    """A cell called as its step, of names between spaces."""
    names = None if recurrent is None else recurrent.split()
    return bp.Cell(
        step.__name__, gates=gates.split(), states=states.split(), parameters=parameters.split(),
        recurrent=names, step=step,
    )  # fmt: skip


#: Cells of which some gates are recurrent.
PARTLY = {
    "partly": cell(partly, "z r n", "h", "", "n r"),
    "forgetful": cell(forgetful, "i f g o", "h c", "", "i o"),
}
SLOW, MIXED = cell(slow, "f c", "h c", "v"), cell(mixed, "f v", "h c", "v h")


def every_function_cell() -> bp.Cell:
    return cell(every_function, "a b", "h c", "q")


class Points(NamedTuple):
    """Arguments of a cell's functions: tuples of arrays, one element per point."""

    x: tuple[np.ndarray, ...]
    u: tuple[np.ndarray, ...]
    before: tuple[np.ndarray, ...]
    p: tuple[np.ndarray, ...]


def probe_points(form: Any, count: int = 64, seed: int = 0, at_rest: int = 0) -> Points:
    """Standard normal x, u and states, the first `at_rest` states 0; parameters in (0.05, 0.95)."""
    random = np.random.default_rng(seed)
    x, u, before = (
        tuple(random.standard_normal(count) for _ in range(size))
        for size in (form.gates, len(form.recurrent_gates), form.states)
    )
    for state in before:
        state[:at_rest] = 0
    return Points(x, u, before, tuple(random.uniform(0.05, 0.95, count) for _ in range(form.parameters)))


# ---- drawn cells ----


@dataclass(frozen=True)
class TextStep:
    """A step as texts, one per state, which pickle."""

    texts: tuple[str, ...]

    def __call__(self, x: Any, u: Any, s: Any, p: Any) -> list[Any]:
        names = {"tanh": tanh, "sigmoid": sigmoid, "relu": relu, "x": x, "u": u, "s": s, "p": p}
        return [eval(text, {**names, "squash": lambda e: e / sympy.sqrt(1 + e**2)}) for text in self.texts]

    def cell(self) -> bp.Cell:
        names = {
            kind: sorted({name for text in self.texts for name in re.findall(rf"\b{kind}\.(\w+)", text)})
            for kind in "xp"
        }
        states = list("hkm"[: len(self.texts)])
        return bp.Cell("drawn", gates=names["x"], states=states, parameters=names["p"], step=self)


@st.composite
def drawn_steps(draw: st.DrawFn) -> TextStep:
    """1 to 4 gates, 1 to 3 states and up to 2 parameters; some gates take their sum scaled by an earlier
    one, some states are functions of others."""
    gates, states = "abde"[: draw(st.integers(1, 4))], "hkm"[: draw(st.integers(1, 3))]
    parameters = [f"p.{name}" for name in "qr"[: draw(st.integers(0, 2))]]
    leaves = [f"s.{state}" for state in states] + parameters
    pool = [*leaves, draw(st.sampled_from(["0.25", "-1.5", "2.0"]))]
    for gate in gates:
        factor = draw(st.sampled_from(["", *(f"{part} * " for part in pool)]))
        more = f" + {draw(st.sampled_from(pool))} * {draw(st.sampled_from(pool))}" * draw(st.booleans())
        pool.append(f"{draw(st.sampled_from(['tanh', 'sigmoid']))}(x.{gate} + {factor}u.{gate}{more})")
    values, texts = pool[-len(gates) :], []
    for _ in states:
        text = draw(st.sampled_from(pool))
        form = draw(st.sampled_from(FORMS))
        text = form.format(text, draw(st.sampled_from(values)), draw(st.sampled_from(pool)))
        texts.append(text)
        pool.append(text)
    # Every gate and parameter is read.
    total = " + ".join(
        [texts[-1], *(f"{part} * {draw(st.sampled_from(leaves))}" for part in values + parameters)]
    )
    return TextStep((total, *texts[:-1]))


#: How a new part is made of an older one, a gate and another part.
FORMS = (
    "({0} + {2})", "({0} * {2})", "({1} * {0} + (1.0 - {1}) * {2})", "tanh({0})", "relu({0})", "squash({0})",
)  # fmt: skip

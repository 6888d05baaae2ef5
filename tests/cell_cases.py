"""Cells for tests: PyTorch's formulas of the built-in ones, one of every function, and drawn ones."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import sympy
import torch
from hypothesis import strategies as st

from bppsa_cupy.cells import Cell, relu, sigmoid


def gru(x, u, s, p):
    r, z = torch.sigmoid(x.r + u.r), torch.sigmoid(x.z + u.z)
    return [(1 - z) * torch.tanh(x.n + r * u.n) + z * s.h]


def lstm(x, u, s, p):
    i, f, o = torch.sigmoid(x.i + u.i), torch.sigmoid(x.f + u.f), torch.sigmoid(x.o + u.o)
    c = f * s.c + i * torch.tanh(x.g + u.g)
    return [o * torch.tanh(c), c]


def mgu(x, u, s, p):
    f = torch.sigmoid(x.f + u.f)
    return [(1 - f) * s.h + f * torch.tanh(x.n + f * u.n)]


def ugrnn(x, u, s, p):
    g = torch.sigmoid(x.g + u.g)
    return [g * s.h + (1 - g) * torch.tanh(x.c + u.c)]


def peephole_lstm(x, u, s, p):
    i, f = torch.sigmoid(x.i + u.i + p.ci * s.c), torch.sigmoid(x.f + u.f + p.cf * s.c)
    c = f * s.c + i * torch.tanh(x.g + u.g)
    return [torch.sigmoid(x.o + u.o + p.co * c) * torch.tanh(c), c]


#: The step of each built-in cell on PyTorch's tensors.
FORMULAS = {
    "rnn_tanh": lambda x, u, s, p: [torch.tanh(x.h + u.h)],
    "rnn_relu": lambda x, u, s, p: [torch.relu(x.h + u.h)],
    "gru": gru,
    "lstm": lstm,
    "ctrnn": lambda x, u, s, p: [(1 - p.alpha) * s.h + p.alpha * torch.tanh(x.h + u.h)],
    "mgu": mgu,
    "ugrnn": ugrnn,
    "peephole_lstm": peephole_lstm,
}


def every_function(x, u, s, p):
    """A step of every function that kernels know; finite for |x|, |u|, |s| that are not huge."""
    a, b = x.a + u.a, x.b * u.b
    low = sympy.Max(sympy.Min(a, 2), b) + relu(b)
    wave = sympy.sin(a) * sympy.cos(b) + sympy.exp(-(b**2)) + sympy.log(2 + s.h**2)
    root = sympy.sqrt(1 + a**2) + (1 + b**2) ** sympy.Rational(-3, 2) + 1 / (2 + s.c**2) ** 2
    branch = sympy.Piecewise(
        (sympy.tanh(a) * p.q, sympy.And(s.h > 0, b < 1)),
        (sympy.Abs(b) / 3, sympy.Or(a >= 0, s.c > 1)),
        (s.c, True),
    )
    c = sigmoid(low) * s.c + wave
    return {"h": root * branch + sympy.sign(a) * c, "c": c}


def every_function_cell() -> Cell:
    return Cell("every_function", gates=["a", "b"], states=["h", "c"], parameters=["q"], step=every_function)


# ---- drawn cells ----

Tree = tuple[Any, ...]


@dataclass(frozen=True)
class DrawnCell:
    """A step as trees, one a new state: to be evaluated on SymPy's symbols and on PyTorch's tensors."""

    gates: tuple[str, ...]
    states: tuple[str, ...]
    parameters: tuple[str, ...]
    trees: tuple[Tree, ...]

    def cell(self) -> Cell:
        def step(x, u, s, p):
            functions = SimpleNamespace(
                tanh=sympy.tanh,
                sigmoid=sigmoid,
                relu=relu,
                squash=lambda e: e / sympy.sqrt(1 + e**2),
                number=float,
            )
            return [evaluate(tree, functions, x, u, s, p) for tree in self.trees]

        return Cell("drawn", gates=self.gates, states=self.states, parameters=self.parameters, step=step)

    def formula(self, x, u, s, p):
        # Numbers are tensors of every point, with a gradient of 0.
        zero = 0 * getattr(s, self.states[0])
        functions = SimpleNamespace(
            tanh=torch.tanh,
            sigmoid=torch.sigmoid,
            relu=torch.relu,
            squash=lambda e: e / torch.sqrt(1 + e**2),
            number=lambda value: value + zero,
        )
        return [evaluate(tree, functions, x, u, s, p) for tree in self.trees]


def evaluate(tree: Tree, functions: Any, x: Any, u: Any, s: Any, p: Any) -> Any:
    """A tree's value: ("x", name) and so on are leaves, the other kinds operators."""
    kind, *parts = tree
    leaves = {"x": x, "u": u, "s": s, "p": p}
    if kind in leaves:
        return getattr(leaves[kind], parts[0])
    if kind == "number":
        return functions.number(parts[0])
    values = [evaluate(part, functions, x, u, s, p) for part in parts]
    if kind == "add":
        return values[0] + values[1]
    if kind == "mul":
        return values[0] * values[1]
    if kind == "mix":
        return values[0] * values[1] + (1 - values[0]) * values[2]
    return getattr(functions, kind)(values[0])


@st.composite
def drawn_cells(draw: st.DrawFn) -> DrawnCell:
    """1 to 4 gates, 1 to 3 states and up to 2 parameters; some gates take their sum scaled by an earlier
    one, some states are functions of others."""
    gates = tuple("abde"[: draw(st.integers(1, 4))])
    states = tuple("hkm"[: draw(st.integers(1, 3))])
    parameters = tuple("qr"[: draw(st.integers(0, 2))])
    leaves = [("s", state) for state in states] + [("p", parameter) for parameter in parameters]
    pool: list[Tree] = [*leaves, ("number", draw(st.sampled_from([0.25, -1.5, 2.0])))]
    function = st.sampled_from(["tanh", "sigmoid"])
    for gate in gates:
        summed: Tree = ("u", gate)
        if draw(st.booleans()):
            summed = ("mul", draw(st.sampled_from(pool)), summed)
        argument = ("add", ("x", gate), summed)
        if draw(st.booleans()):
            argument = ("add", argument, ("mul", draw(st.sampled_from(pool)), draw(st.sampled_from(pool))))
        pool.append((draw(function), argument))
    values = pool[-len(gates) :]
    trees: list[Tree] = []
    for _ in states:
        tree = draw(st.sampled_from(pool))
        for _ in range(draw(st.integers(1, 2))):
            kind = draw(st.sampled_from(["add", "mul", "mix", "tanh", "relu", "squash"]))
            if kind in ("tanh", "relu", "squash"):
                tree = (kind, tree)
            elif kind == "mix":
                tree = ("mix", draw(st.sampled_from(values)), tree, draw(st.sampled_from(pool)))
            else:
                tree = (kind, tree, draw(st.sampled_from(pool)))
        trees.append(tree)
        pool.append(tree)
    # Every gate and parameter is read.
    whole = trees[-1]
    for part in (*values, *(("p", parameter) for parameter in parameters)):
        whole = ("add", whole, ("mul", part, draw(st.sampled_from(leaves))))
    return DrawnCell(gates, states, parameters, (whole, *trees[:-1]))

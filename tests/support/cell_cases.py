"""Cells for tests: PyTorch's formulas of the built-in ones, one of every function, and drawn ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import sympy
import torch
from hypothesis import strategies as st

from bppsa_cupy.cells import Cell, relu, sigmoid
from bppsa_cupy.cells.probe import Points


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

    def values(self, points: Points) -> list[np.ndarray]:
        """The new states at points, by NumPy."""
        functions = SimpleNamespace(
            tanh=np.tanh,
            sigmoid=lambda e: 1 / (1 + np.exp(-e)),
            relu=lambda e: np.maximum(e, 0),
            squash=lambda e: e / np.sqrt(1 + e**2),
            number=float,
        )
        names = self.gates, self.gates, self.states, self.parameters
        given = [
            SimpleNamespace(**dict(zip(*each, strict=False))) for each in zip(names, points, strict=True)
        ]
        return [evaluate(tree, functions, *given) + np.zeros_like(points.x[0]) for tree in self.trees]

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


def with_number(cell: DrawnCell, draw: Any) -> DrawnCell:
    """The cell with a constant as factor of one part of a tree; `draw` chooses of a list."""
    number, path = draw(_places(cell))
    return _changed(cell, number, path, ("mul", ("number", 0.75), _at(cell.trees[number], path)))


def edited(cell: DrawnCell, draw: Any) -> DrawnCell:
    """The cell with a change in one place of one tree, as often as not of a constant: its value, its sign,
    one that is drawn from a state or a parameter; else an operand, the order of two, a parameter more, a
    function. The change may mean nothing, or leave a value that is read no more."""
    places = _places(cell)
    constants = [place for place in places if _at(cell.trees[place[0]], place[1])[0] == "number"]
    number, path = draw(draw([constants or places, places]))
    kind, *parts = old = _at(cell.trees[number], path)
    more = f"q{len(cell.parameters)}"
    leaves = [("x", g) for g in cell.gates] + [("s", s) for s in cell.states]
    leaves += [("p", p) for p in (*cell.parameters, more)]
    changes: list[Tree] = [("mul", ("number", -1.0), old), ("mul", ("number", 1.5), old)]
    if kind == "number":
        value = parts[0]
        changes = [("number", v) for v in (-value, value / 3, value * (1 + 1e-9), value + 2)]
        changes += [draw(leaves)]
    elif kind in "xusp":
        changes += [leaf for leaf in leaves if leaf != old]
    elif kind in ("add", "mul", "mix"):
        changes += [(kind, *parts[1:], parts[0]), ("mul" if kind == "add" else "add", *parts[:2])]
    else:
        changes = [(other, *parts) for other in ("tanh", "sigmoid", "relu", "squash") if other != kind]
    found = _changed(cell, number, path, draw(changes))
    reads = any(_at(found.trees[n], place) == ("p", more) for n, place in _places(found))
    return replace(found, parameters=(*cell.parameters, more)) if reads else found


def _places(cell: DrawnCell) -> list[tuple[int, tuple[int, ...]]]:
    """Every subtree's tree and path."""
    return [(number, path) for number, tree in enumerate(cell.trees) for path in _paths(tree)]


def _changed(cell: DrawnCell, number: int, path: tuple[int, ...], part: Tree) -> DrawnCell:
    new = _with(cell.trees[number], path, part)
    return replace(cell, trees=(*cell.trees[:number], new, *cell.trees[number + 1 :]))


def _paths(tree: Tree, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """The places of a tree's subtrees, its own first."""
    yield path
    for number, part in enumerate(tree):
        if isinstance(part, tuple):
            yield from _paths(part, (*path, number))


def _at(tree: Tree, path: tuple[int, ...]) -> Tree:
    for number in path:
        tree = tree[number]
    return tree


def _with(tree: Tree, path: tuple[int, ...], part: Tree) -> Tree:
    if not path:
        return part
    first, *rest = path
    return (*tree[:first], _with(tree[first], tuple(rest), part), *tree[first + 1 :])

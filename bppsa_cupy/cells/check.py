"""Comparing a cell's functions with its step, and with their own derivatives, on numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bppsa_cupy.arguments import as_instance
from bppsa_cupy.cells.cell import Cell
from bppsa_cupy.cells.definition import need_sympy
from bppsa_cupy.cells.probe import Numbers, Points, probe_points
from bppsa_cupy.errors import CellError

#: Bounds of the differences, relative to the largest number compared or to 1: of float64 roundings, and of
#: central differences of STEP.
EXACT, DIFFERENCE, STEP = 1e-12, 1e-7, 1e-6


class CellReport(NamedTuple):
    """The largest differences that `bp.check_cell` found, relative to the largest number compared or to 1.

    forward      the forward function from the step's expressions
    vjp          gradients from central differences of the forward function
    coefficients a step's Jacobian, as the reduction and the fill form it, from the gradients
    """

    forward: float
    vjp: float
    coefficients: float


def check_cell(cell: Cell) -> CellReport:
    """Compare a cell's functions with its step, with finite differences in float64, and with one another.

    Points within a step of a kink, where differences mean nothing, do not count. Gives the largest
    differences. Raises CellError, with what differs and where, if one differs by more than 1e-7 (roundings
    alone: 1e-12).

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> max(bp.check_cell(bp.Cell.built_in("gru"))) < 1e-7
    True
    """
    as_instance("check_cell", "cell", cell, Cell, "a bp.Cell")
    need_sympy(f"check_cell({cell.name!r}) compares with the step, which")
    points = probe_points(cell.form, seed=1)
    with np.errstate(all="ignore"):
        return CellReport(
            _compare(cell, "the forward function", "the step", _forward_pairs(cell, points), EXACT),
            _compare(cell, "the gradient", "finite differences", _vjp_pairs(cell, points), DIFFERENCE),
            _compare(cell, "the Jacobian", "the gradients", _jacobian_pairs(cell, points), EXACT),
        )


Pair = tuple[str, NDArray[np.float64], NDArray[np.float64]]


def _compare(cell: Cell, ours: str, theirs: str, pairs: Iterable[Pair], bound: float) -> float:
    """The largest difference of pairs, what each is and both values, relative to the largest number compared
    or to 1. Raises CellError where it passes `bound`."""
    worst = 0.0
    for what, value, expected in pairs:
        difference = np.max(np.abs(value - expected), initial=0.0) / max(
            1.0, np.max(np.abs(expected), initial=0.0)
        )
        if not difference <= bound:
            raise CellError(
                f"cell {cell.name!r}: {ours} of {what} differs from {theirs} by {difference:.1e}, at most "
                f"{bound:.0e} is rounding: the step may have a kink or a jump there"
            )
        worst = max(worst, float(difference))
    return worst


def _forward_pairs(cell: Cell, points: Points) -> list[Pair]:
    """New states by the forward function and by the step's own expressions."""
    import sympy

    from bppsa_cupy.cells.symbolic import numeric
    from bppsa_cupy.cells.trace import trace

    traced = trace(cell.definition)
    symbols = [*traced.x, *traced.u, *traced.before, *traced.p]
    # SymPy orders the terms of a sum by names, and those of its dummies hold a counter.
    plain = {symbol: sympy.Symbol(f"v{number:03}") for number, symbol in enumerate(symbols)}
    values = [value for kind in points for value in kind]
    after, _ = cell.form.functions.forward(*points)
    return [
        (state, found, sympy.lambdify(list(plain.values()), expression.xreplace(plain), numeric())(*values))
        for state, found, expression in zip(cell.states, after, traced.after, strict=True)
    ]


def _vjp_pairs(cell: Cell, points: Points) -> list[Pair]:
    """Gradients by the backward function and by central differences, of each new state by each number."""
    form, functions = cell.form, cell.form.functions
    after, kept = functions.forward(*points)
    pairs: list[Pair] = []
    for row, state in enumerate(cell.states):
        by_x, by_u, by_before, by_p = functions.backward(
            _unit(form.states, row, points), kept, after, *points[2:]
        )
        through_u = dict(zip(form.separate, by_u, strict=True))
        by_u = tuple(through_u.get(gate, by_x[gate]) for gate in form.recurrent_gates)
        for kind, gradients in enumerate((by_x, by_u, by_before, by_p)):
            for place, gradient in enumerate(gradients):
                slope, smooth = _difference(functions.forward, points, kind, place, row)
                what = f"new {state} by {'xusp'[kind]}[{place}]"
                pairs.append((what, np.where(smooth, gradient, 0.0), np.where(smooth, slope, 0.0)))
    return pairs


def _difference(
    forward: Callable[..., Any], points: Points, kind: int, place: int, row: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The central difference of a new state, and where its second difference is that of a smooth function."""

    def at(offset: float) -> NDArray[np.float64]:
        moved = list(points[kind])
        moved[place] = moved[place] + offset
        after, _ = forward(*points[:kind], tuple(moved), *points[kind + 1 :])
        return np.asarray(after[row])

    low, middle, high = at(-STEP), at(0.0), at(STEP)
    return (high - low) / (2 * STEP), np.abs(high - 2 * middle + low) < 1e-3 * STEP


def _jacobian_pairs(cell: Cell, points: Points) -> list[Pair]:
    """What each new state makes of every former one: through W_hh, of random weights, and without it; by
    the reduction's functions and by the backward function."""
    form, functions = cell.form, cell.form.functions
    after, kept = functions.forward(*points)
    a = functions.coefficients(kept, after, *points[2:])
    w = probe_points(form, seed=2).u
    dense, pairs = dict.fromkeys(form.dense), []
    for row, state in enumerate(cell.states):
        g = _unit(form.states, row, points)
        by_x, by_u, by_before, _ = functions.backward(g, kept, after, *points[2:])
        through_u = dict(zip(form.separate, by_u, strict=True))
        by_sums = (through_u.get(gate, by_x[gate]) for gate in form.recurrent_gates)
        expected = sum((x * y for x, y in zip(w, by_sums, strict=True)), np.zeros_like(g[0]))
        x = functions.enter(a, g)
        entries = functions.entry(a, w) if form.sums else [np.zeros_like(g[0])] * form.states
        found = sum(p * entered for p, entered in zip(entries, x, strict=True))
        pairs.append((f"new {state} through W_hh", found, expected))
        for former, (value, gradient) in enumerate(zip(functions.carry(a, x), by_before, strict=True)):
            pairs.append((f"new {state} by s[{former}]", value, gradient))
            held = (former, row) in form.diagonal
            pairs.append((f"the block of new {state} by s[{former}]", gradient * (not held), gradient * 0.0))
        pairs.append(
            (f"the block of new {state} through W_hh", expected * ((0, row) not in dense), expected * 0.0)
        )
    return pairs


def _unit(states: int, row: int, points: Points) -> Numbers:
    """A gradient of 1 by one new state."""
    return tuple(np.full_like(points.x[0], place == row) for place in range(states))

"""Values and derivatives of a cell at points where a walk may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bppsa_cupy.cells.definition import Definition
from bppsa_cupy.errors import CellError
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.linear.form import LinearForm

Numbers = tuple[NDArray[np.float64], ...]


class Points(NamedTuple):
    """Arguments of a cell's functions: tuples of float64 arrays, one element a point."""

    x: Numbers
    u: Numbers
    before: Numbers
    p: Numbers


def probe_points(form: CellForm, count: int = 64, seed: int = 0, at_rest: int = 0) -> Points:
    """`count` points of standard normal x, u and states, the first `at_rest` at states of 0, where every walk
    starts; parameters in (0.05, 0.95)."""
    random = np.random.default_rng(seed)

    def normal(size: int) -> Numbers:
        return tuple(random.standard_normal(count) for _ in range(size))

    x, u, before = normal(form.gates), normal(len(form.recurrent_gates)), normal(form.states)
    for state in before:
        state[:at_rest] = 0
    return Points(x, u, before, tuple(random.uniform(0.05, 0.95, count) for _ in range(form.parameters)))


def check_finite(definition: Definition, form: CellForm) -> None:
    """Raise CellError where a new state or a derivative is not finite at a probe's point."""
    points = probe_points(form, at_rest=8)
    with np.errstate(all="ignore"):
        after, kept = form.functions.forward(*points)
        for state, values in zip(definition.states, after, strict=True):
            _check(definition, points, f"its new {state}", values)
        for seed, state in enumerate(definition.states):
            g = tuple(np.full_like(points.x[0], place == seed) for place in range(form.states))
            by = form.functions.backward(g, kept, after, points.before, points.p)
            for name, values in _named(definition, form, by):
                _check(definition, points, f"the derivative of its new {state} by {name}", values)


def check_finite_terms(definition: Definition, form: LinearForm) -> None:
    """Raise CellError where a factor, a term, an output or a derivative of a linear cell is not finite."""
    random, functions = np.random.default_rng(0), form.functions
    before = tuple(random.standard_normal((len(definition.states), 64)))
    x, p = tuple(random.standard_normal((form.gates, 64))), random.uniform(0.05, 0.95, (form.parameters, 64))
    points, state = Points(x, (), before, tuple(p)), before[-1:]
    results = ("factor", "term", "output")[: 2 + form.has_output]
    leaves = [f"x.{gate}" for gate in definition.gates] + [f"p.{own}" for own in definition.parameters]
    with np.errstate(all="ignore"):
        values = [*functions.terms(x, points.p)]
        if functions.output is not None:
            values.append(functions.output(x, state, points.p))
        for place, result in enumerate(results):
            _check(definition, points, f"its {result}", values[place][0])
            g = tuple(np.full(64, float(number == place)) for number in range(len(results)))
            by_x, by_p = functions.by_inputs(g, x, state, points.p)
            for leaf, by in zip(leaves, (*by_x, *by_p), strict=True):
                _check(definition, points, f"the derivative of its {result} by {leaf}", by)


def _named(definition: Definition, form: CellForm, by: tuple[Numbers, ...]) -> Iterator[tuple[str, NDArray]]:
    names = (
        [f"x.{gate}" for gate in definition.gates],
        [f"u.{definition.gates[gate]}" for gate in form.separate],
        [f"s.{state}" for state in definition.states],
        [f"p.{parameter}" for parameter in definition.parameters],
    )
    for kind, values in zip(names, by, strict=True):
        yield from zip(kind, values, strict=True)


def _check(definition: Definition, points: Points, what: str, values: NDArray[np.float64]) -> None:
    wrong = np.flatnonzero(~np.isfinite(np.broadcast_to(values, points.x[0].shape)))
    if not wrong.size:
        return
    recurrent = [definition.gates[gate] for gate in definition.recurrent_gates]
    names = definition.gates, recurrent, definition.states, definition.parameters
    letters = zip("xusp", points, names, strict=True)
    place = ", ".join(
        f"{letter}.{name} = {number[wrong[0]]:.3g}"
        for letter, numbers, named in letters
        for name, number in zip(named, numbers, strict=True)
    )
    from bppsa_cupy.cells.trace import trace

    steps = zip(definition.states, trace(definition).after, strict=True)
    expressions = "; ".join(f"new {state} = {step}" for state, step in steps)
    value = np.broadcast_to(values, points.x[0].shape)[wrong[0]]
    raise CellError(
        f"cell {definition.name!r} ({expressions}): {what} is {value} at {place}; keep it finite there, by "
        "Max or Piecewise"
    )

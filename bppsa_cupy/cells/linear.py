"""Linear cells: what their scan takes of a step, and its texts.

The step of a linear cell reads no recurrent sum and is affine in one former state c: its new value is
a c + b, with a and b of the projected inputs x and the unit parameters p. What is put out is that state, or
y of x, p and the new c. All derivatives are those of one elementwise function, (x, c, p) -> (a, b, y).
"""

from __future__ import annotations

from dataclasses import replace

import sympy

from bppsa_cupy.cells.definition import Definition
from bppsa_cupy.cells.derivation import by_symbol, derive
from bppsa_cupy.cells.trace import TracedStep, is_affine, trace
from bppsa_cupy.cells.writing import function_text, functions_of
from bppsa_cupy.errors import CellError
from bppsa_cupy.raw_kernels.linear.form import LinearForm, LinearFunctions


def linear_form(definition: Definition) -> LinearForm | None:
    """The form of a cell without recurrent gates; None where its step is not affine in one former state, or
    puts out what is not made of its new value. Raises CellError where it reads no former state."""
    traced = trace(definition)
    states = definition.states
    read = set().union(*(expression.free_symbols for expression in traced.after))
    carried = [place for place, symbol in enumerate(traced.before) if symbol in read]
    if not carried:
        raise CellError(
            f"cell {definition.name!r} has no recurrent gates, and its step reads no former state: it has "
            "nothing to carry from step to step"
        )
    place = carried[0]
    if len(carried) > 1 or len(states) - (place != 0) > 1:
        return None
    before, after = traced.before[place], traced.after[place]
    factor = sympy.diff(after, before)
    if factor == 0 or not is_affine(replace(traced, after=(after,))):
        return None
    state = sympy.Symbol(f"n.{states[place]}", real=True)
    results = [factor, after.xreplace({before: sympy.Integer(0)})]
    if place:
        results.append(by_symbol(traced.after[0], after, state))
        if before in results[2].free_symbols:
            return None
    functions = functions_of("\n\n\n".join(_texts(traced, state, results)), LinearFunctions)
    return LinearForm(definition.name, len(definition.gates), len(definition.parameters), functions)


def _texts(traced: TracedStep, state: sympy.Symbol, results: list[sympy.Expr]) -> list[str]:
    """The functions of the cell; where the state is put out itself, only the first and the last."""
    # As a step without recurrent sums, whose new states are factor, term and output.
    definition = replace(traced.definition, states=("a", "b", "y")[: len(results)], recurrent=())
    d = derive(TracedStep(definition, traced.x, (), (state,), traced.p, tuple(results)))
    symbols = d.definitions | d.kept
    own, given = {"x": traced.x, "p": traced.p}, {"x": traced.x, "state": (state,), "p": traced.p}
    texts = [function_text("terms", own, (d.after[:1], d.after[1:2]), symbols, "x[0]")]
    if len(results) > 2:
        texts += [
            function_text("output", given, (d.after[2:],), symbols, "x[0]"),
            function_text("by_state", {"g": d.gradients[2:], **given}, (d.by_before,), symbols, "x[0]"),
        ]
    by_inputs = {"g": d.gradients, **given}
    return [*texts, function_text("by_inputs", by_inputs, (d.by_x, d.by_p), symbols, "x[0]")]

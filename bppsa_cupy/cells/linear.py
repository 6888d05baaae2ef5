"""Linear cells: what their scan takes of a step, and its texts.

The step of a linear cell reads no recurrent sum and is affine in one former state c: its new value is
a c + b, with a and b of the projected inputs x and the unit parameters p. What is put out is that state, or
y of x, p and the new c. All derivatives are those of one elementwise function, (x, c, p) -> (a, b, y).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy

from bppsa_cupy.cells.definition import Definition
from bppsa_cupy.cells.derivation import derive
from bppsa_cupy.cells.emission import (
    emitted,
    twin_function,
    with_imports,
)
from bppsa_cupy.cells.form import functions_of
from bppsa_cupy.cells.graph import Graph
from bppsa_cupy.cells.symbolic import Expression
from bppsa_cupy.cells.texts import CellFunction, Parts
from bppsa_cupy.cells.trace import TracedStep, is_affine, trace
from bppsa_cupy.errors import CellError
from bppsa_cupy.raw_kernels.linear.form import SIGNATURES, LinearForm, LinearFunctions

_TEMPLATE = '''"""The linear cell {name} for twins; `python -m bppsa_cupy.cells.generate` writes it."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.linear.form import LinearForm, LinearFunctions
{functions}

FORM = LinearForm("{name}", {gates}, {parameters}, LinearFunctions({names}))
'''


@dataclass(frozen=True)
class LinearStep:
    """A linear cell's step: c' = a c + b, and what is put out.

    carried  the place among the states of c
    factor, term  a and b, of x and p
    output   of x, p and `state`, the symbol of the new c; None where c is put out itself
    """

    traced: TracedStep
    carried: int
    state: sympy.Symbol
    factor: Expression
    term: Expression
    output: Expression | None


def linear_step(definition: Definition) -> LinearStep | None:
    """The step of a cell without recurrent gates; None where it is not affine in one former state, or puts
    out what is not made of its new value. Raises CellError where it reads no former state."""
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
    state, output = sympy.Symbol(f"n.{states[place]}", real=True), None
    if place:
        output = _of_new(traced.after[0], after, state)
        if before in output.free_symbols:
            return None
    return LinearStep(traced, place, state, factor, after.xreplace({before: sympy.Integer(0)}), output)


def _of_new(expression: Expression, after: Expression, state: sympy.Symbol) -> Expression:
    """`expression` with the symbol `state` wherever `after` stands in it, also among others in a sum or a
    product."""

    def holds(part: Expression) -> bool:
        return bool(after.args) and part.func == after.func and set(after.args) <= set(part.args)

    def replaced(part: Expression) -> Expression:
        return part.func(state, *(other for other in part.args if other not in after.args))

    return expression.xreplace({after: state}).replace(holds, replaced)


def linear_text(step: LinearStep) -> str:
    """The text of the functions of twins."""
    parts, functions = _functions(step)
    used: set[tuple[str, str]] = set()
    blocks = []
    for name, arguments, _ in SIGNATURES:
        if name in functions:
            block, words = twin_function(name, arguments, emitted(functions[name], parts.names), "x[0]")
            used |= words
            blocks.append(block)
    return with_imports(used, blocks)


def _functions(step: LinearStep) -> tuple[Parts, dict[str, CellFunction]]:
    """The cell's functions by name; where the state is put out itself, the first and the last alone."""
    traced, results = step.traced, [step.factor, step.term]
    if step.output is not None:
        results.append(step.output)
    # As a step without recurrent sums, whose new states are the results.
    definition = replace(traced.definition, states=("a", "b", "y")[: len(results)], recurrent=None)
    sums = tuple(sympy.Symbol(f"u.{gate}", real=True) for gate in definition.gates)
    derived = derive(Graph(TracedStep(definition, traced.x, sums, (step.state,), traced.p, tuple(results))))
    parts, own = Parts(derived), {"x": traced.x, "p": traced.p}
    given = {"x": traced.x, "state": (step.state,), "p": traced.p}
    a, b, *y = derived.graph.after
    found = {"terms": parts.part(own, a=(a,), b=(b,))}
    if y:
        by_output = {"g": derived.gradients[2:], **given}
        found["output"] = parts.part(given, y=tuple(y))
        found["by_state"] = parts.part(by_output, by=derived.by_before)
    all_given = {"g": derived.gradients, **given}
    found["by_inputs"] = parts.part(all_given, by_x=derived.by_x, by_p=derived.by_p)
    return parts, found


def linear_form(step: LinearStep) -> LinearForm:
    """The form of a linear cell that no file holds."""
    definition = step.traced.definition
    made = functions_of(linear_text(step), LinearFunctions)
    return LinearForm(definition.name, len(definition.gates), len(definition.parameters), made)


def linear_module(definition: Definition) -> str:
    """The text of `raw_kernels/linear_cells/NAME.py`."""
    step = linear_step(definition)
    assert step is not None
    functions = linear_text(step)
    names = [name for name in LinearFunctions.__annotations__ if f"\ndef {name}(" in functions]
    return _TEMPLATE.format(
        name=definition.name,
        functions=functions,
        gates=len(definition.gates),
        parameters=len(definition.parameters),
        names=", ".join(names),
    )

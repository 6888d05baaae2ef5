"""A definition's form: its functions' texts, and the numbers that frames take of it.

The step of a linear cell reads no recurrent sum and is affine in one former state c: its new value is
a c + b, with a and b of the projected inputs x and the unit parameters p. What is put out is that state, or
y of x, p and the new c. All derivatives are those of one elementwise function, (x, c, p) -> (a, b, y).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy

from bppsa_cupy.cells.definition import Definition
from bppsa_cupy.cells.derivation import Derivation, Symbols, Table, by_symbol, derive, reached
from bppsa_cupy.cells.symbolic import Expression
from bppsa_cupy.cells.trace import TracedStep, is_affine, trace
from bppsa_cupy.cells.writing import function_text, functions_of
from bppsa_cupy.errors import CellError
from bppsa_cupy.raw_kernels.frames.form import CellForm, Functions
from bppsa_cupy.raw_kernels.linear.form import LinearForm, LinearFunctions


def form_of(definition: Definition) -> CellForm:
    """Derive and write a cell; raises CellError as `trace` does. The same texts in every run."""
    traced = trace(definition)
    derived = derive(traced)
    functions = functions_of("\n\n\n".join(_texts(derived)), Functions)
    dense, diagonal = _blocks(derived)
    states = len(definition.states)
    backward = [*derived.by_x, *derived.by_u, *derived.by_before, *derived.by_p, *_varying(derived)]
    inner = {symbol: value for symbol, value in derived.definitions.items() if symbol not in derived.after}
    read = set().union(*(value.free_symbols for value in reached(backward, inner)))
    after, before = (
        tuple(place for place, symbol in enumerate(symbols) if symbol in read)
        for symbols in (derived.after, traced.before)
    )
    return CellForm(
        definition.name, len(definition.gates), states, len(derived.kept), len(definition.parameters),
        derived.separate, after, before, len(_varying(derived)), dense, diagonal,
        columns=4 if states == 1 else 2, tile_columns=8 if states == 1 else 4, functions=functions,
        recurrent=None if definition.recurrent is None else definition.recurrent_gates,
        affine=not traced.u and is_affine(traced),
    )  # fmt: skip


def _varying(derived: Derivation) -> list[Expression]:
    """The coefficients of a step's Jacobian that are no fixed numbers, each once."""
    tables = (derived.among, derived.gates, derived.direct)
    return list(dict.fromkeys(value for table in tables for value in table.values() if not value.is_number))


def _texts(derived: Derivation) -> list[str]:
    """The functions of a cell, in the order of `Functions`."""
    traced, kept, varying = derived.traced, tuple(derived.kept), _varying(derived)
    states, gates = len(derived.after), len(traced.u)
    forward = {"x": traced.x, "u": traced.u, "before": traced.before, "p": traced.p}
    back = {"kept": kept, "after": derived.after, "before": traced.before, "p": traced.p}
    a, x, w = _symbols("a", len(varying)), _symbols("x", states), _symbols("w", gates)

    def coefficient(table: Table, row: int, column: int) -> Expression:
        value = table.get((row, column), sympy.Integer(0))
        return value if value.is_number else a[varying.index(value)]

    entered: list[Expression] = list(x)
    only = [_only_gate(derived, state) for state in range(states)]
    waiting = list(range(states))
    while waiting:  # states that no other state reads come first
        read = {column for row, column in derived.among if row in waiting}
        state = next(state for state in waiting if state not in read)
        waiting.remove(state)
        for row, other in sorted(derived.among):
            if row == state:
                entered[other] += coefficient(derived.among, state, other) * entered[state]
        if (gate := only[state]) is not None:
            entered[state] *= coefficient(derived.gates, state, gate)
    rows = [
        w[gate]
        if (gate := only[state]) is not None
        else sympy.Add(*(coefficient(derived.gates, state, gate) * w[gate] for gate in range(gates)))
        for state in range(states if gates else 0)
    ]
    columns = [
        sympy.Add(*(coefficient(derived.direct, state, former) * x[state] for state in range(states)))
        for former in range(states)
    ]
    results = derived.by_x, derived.by_u, derived.by_before, derived.by_p
    definitions, like = derived.definitions, "kept[0]" if kept else "after[0]"
    return [
        function_text(
            "forward", forward, (derived.after, tuple(derived.kept)), definitions | derived.kept, "x[0]"
        ),
        function_text("backward", {"g": derived.gradients, **back}, results, definitions, "g[0]"),
        function_text("coefficients", back, (varying,), definitions, like),
        function_text("enter", {"a": a, "x": x}, (entered,), {}, "x[0]"),
        function_text("entry", {"a": a, "w": w}, (rows,), {}, "w[0]"),
        function_text("carry", {"a": a, "x": x}, (columns,), {}, "x[0]"),
    ]


def _symbols(letter: str, count: int) -> Symbols:
    return tuple(sympy.Symbol(f"{letter}[{place}]", real=True) for place in range(count))


def _only_gate(derived: Derivation, state: int) -> int | None:
    """The recurrent gate that a new state reads, where it reads one and no former state directly."""
    gates = [gate for row, gate in derived.gates if row == state]
    direct = [row for row, _ in derived.direct if row == state]
    return gates[0] if len(gates) == 1 and not direct else None


def _blocks(derived: Derivation) -> Sequence[tuple[tuple[int, int], ...]]:
    """Blocks (former state, new state) of the Jacobian through W_hh, and of what is read directly."""
    dense = {(0, state) for state, _ in derived.gates}
    diagonal = {(former, state) for state, former in derived.direct}
    for blocks in (dense, diagonal):
        while more := {(j, row) for row, other in derived.among for j, i in blocks if i == other} - blocks:
            blocks |= more
    return tuple(sorted(dense)), tuple(sorted(diagonal))


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
    functions = functions_of("\n\n\n".join(_linear_texts(traced, state, results)), LinearFunctions)
    return LinearForm(definition.name, len(definition.gates), len(definition.parameters), functions)


def _linear_texts(traced: TracedStep, state: sympy.Symbol, results: list[sympy.Expr]) -> list[str]:
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

"""A cell's form: derivatives of its step, the functions' texts, and the numbers that frames read.

Gradients follow by reverse accumulation over the step's expressions. Derivatives are expressed by the values
of functions: s (1 - s) for a sigmoid s. The Jacobian of a step by the former states is, for the new states n
and the rows W_g of W_hh,

    J = (I - C)^-1 (D + the sum over gates of diag(U_g) W_g)

where C holds what new states read of one another, D what they read of former ones directly, and U_g what
they read of gate g's recurrent sum: all diagonal, so one number per unit each.

The step of a linear cell reads no recurrent sum and is affine in one former state c: its new value is
a c + b, with a and b of the projected inputs x and the unit parameters p. What is put out is that state, or
y of x, p and the new c. All derivatives are those of one elementwise function, (x, c, p) -> (a, b, y).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import sympy

from bppsa_cupy.cells.writing import (
    FUNCTIONS,
    Expression,
    function_text,
    functions_of,
    in_functions,
    is_mask,
    plain,
)
from bppsa_cupy.errors import CellError
from bppsa_cupy.raw_kernels.frames.form import CellForm, Functions
from bppsa_cupy.raw_kernels.linear.form import LinearForm, LinearFunctions

#: A `bp.Cell`, whose module imports this one.
Cell = Any


@dataclass(frozen=True)
class TracedStep:
    """The step of one unit: a symbol for each projected input x, recurrent sum u, former state and unit
    parameter, called as the step calls it ("x.h"), and an expression of them for each new state."""

    cell: Cell
    x: tuple[sympy.Symbol, ...]
    u: tuple[sympy.Symbol, ...]
    before: tuple[sympy.Symbol, ...]
    p: tuple[sympy.Symbol, ...]
    after: tuple[Expression, ...]


class _Symbols:
    """The symbols of one kind by name, as attributes."""

    def __init__(self, cell: str, letter: str, kind: str, names: tuple[str, ...]) -> None:
        others = f"the {kind} of the cell are {', '.join(names) or 'none'}"
        self._what = f"the step of cell {cell!r}", letter, others
        self._symbols = {name: sympy.Symbol(f"{letter}.{name}", real=True) for name in names}

    def __getattr__(self, name: str) -> sympy.Symbol:
        if name in self._symbols:
            return self._symbols[name]
        if name.startswith("__"):
            raise AttributeError(name)
        step, letter, others = self._what
        raise CellError(f"{step} reads {letter}.{name}, but {others}: declare {name!r}, or change the step")


def trace(cell: Cell) -> TracedStep:
    """Call the step of a cell on symbols.

    Raises CellError, with the expression, where a new state is missing or no expression, where it holds
    anything but numbers, the cell's symbols and functions of one unit, and where nothing reads a gate or a
    parameter.
    """
    name = cell.name
    kinds = (
        ("x", "gates", cell.gates),
        ("u", "recurrent gates", cell.recurrent),
        ("s", "states", cell.states),
        ("p", "parameters", cell.parameters),
    )
    arguments = [_Symbols(name, *kind) for kind in kinds]
    try:
        result = cell.step(*arguments)
    except (TypeError, AttributeError) as error:
        raise CellError(
            f"the step of cell {name!r} fails on symbols ({error}): use SymPy functions, such as "
            "sympy.tanh(x.h + u.h), and Piecewise instead of `if`"
        ) from error
    after = tuple(plain(_expression(name, state, value)) for state, value in _by_state(cell, result))
    known = [tuple(symbols._symbols.values()) for symbols in arguments]
    for state, expression in zip(cell.states, after, strict=True):
        _check(name, state, expression, {symbol for symbols in known for symbol in symbols})
    read = set().union(*(expression.free_symbols for expression in after))
    sums = dict(zip(cell.recurrent_gates, known[1], strict=True))
    for place, gate in enumerate(cell.gates):
        taken = [known[0][place], *([sums[place]] if place in sums else [])]
        if not read & set(taken):
            none = f"neither {taken[0]} nor {taken[1]}" if len(taken) > 1 else f"no {taken[0]}"
            raise CellError(
                f"the step of cell {name!r} reads {none}: use the gate in the step, or remove {gate!r} from "
                "gates"
            )
    for parameter, symbol in zip(cell.parameters, known[3], strict=True):
        if symbol not in read:
            raise CellError(
                f"the step of cell {name!r} does not read {symbol}: use the parameter in the step, or remove "
                f"{parameter!r} from parameters"
            )
    x, u, before, p = known
    return TracedStep(cell, x, u, before, p, after)


def _by_state(cell: Cell, result: object) -> list[tuple[str, object]]:
    """The new states that a step gave, in order."""
    name, states = cell.name, cell.states
    if isinstance(result, Mapping):
        missing = [state for state in states if state not in result]
        unknown = [str(key) for key in result if key not in states]
        if missing or unknown:
            raise CellError(
                f"cell {name!r} has states {', '.join(states)}, but its step sets "
                f"{', '.join(map(str, result)) or 'none'}: "
                + (f"set {missing[0]!r} too" if missing else f"add {unknown[0]!r} to its states")
            )
        return [(state, result[state]) for state in states]
    values = list(result) if isinstance(result, tuple | list) else [result]
    if len(values) != len(states):
        raise CellError(
            f"cell {name!r} has {len(states)} states, {', '.join(states)}, but its step returns "
            f"{len(values)}: return one new value per state, by name or in order"
        )
    return list(zip(states, values, strict=True))


def _expression(name: str, state: str, value: object) -> Expression:
    try:
        expression = sympy.sympify(value, strict=True)
    except (sympy.SympifyError, TypeError) as error:
        raise CellError(
            f"cell {name!r} got {value!r} as its new {state}: return a SymPy expression"
        ) from error
    if not isinstance(expression, sympy.Expr) or isinstance(expression, sympy.MatrixExpr):
        raise CellError(f"cell {name!r} got {value} as its new {state}: return a scalar SymPy expression")
    return expression


def _check(name: str, state: str, expression: Expression, known: set[sympy.Symbol]) -> None:
    """Raise CellError where the expression is not elementwise in known symbols."""
    quoted = f"cell {name!r}: the expression {str(expression)!r} of the new {state}"
    unknown = sorted(map(str, expression.free_symbols - known))
    if unknown:
        raise CellError(
            f"{quoted} contains {unknown[0]}, which is not an x, u, s or p of the cell: declare it"
        )
    for part in sympy.preorder_traversal(expression):
        if isinstance(part, sympy.Piecewise):
            if part.args[-1][1] != True:  # noqa: E712
                raise CellError(
                    f"{quoted} contains {part}, which has no value if no condition is true: add (…, True)"
                )
        elif part.is_number if isinstance(part, sympy.Expr) else False:
            if not (part.is_real and part.is_finite):
                raise CellError(
                    f"{quoted} contains {part}, which is not a finite real number: use finite real numbers"
                )
        elif not isinstance(part, _ELEMENTWISE):
            raise CellError(
                f"{quoted} is not elementwise or not supported, because of {part}: use + - * / **, tanh, "
                "sigmoid, exp, log, sqrt, sin, cos, sinh, cosh, Abs, sign, Max, Min "
                "and Piecewise of one unit"
            )


_ELEMENTWISE = (
    sympy.Symbol,
    sympy.Add,
    sympy.Mul,
    sympy.Pow,
    sympy.Max,
    sympy.Min,
    *FUNCTIONS,
    sympy.functions.elementary.piecewise.ExprCondPair,
    sympy.core.relational.Relational,
    sympy.And,
    sympy.Or,
    sympy.Not,
    sympy.logic.boolalg.BooleanAtom,
)


Symbols = tuple[sympy.Symbol, ...]
Definitions = dict[sympy.Symbol, Expression]
Table = dict[tuple[int, int], Expression]


@dataclass(frozen=True)
class Derivation:
    """A cell's quantities as expressions of symbols.

    Attributes
    ----------
    definitions : Definitions
        Symbol -> its expression in other symbols.
    after : Symbols
        The symbols of the new states; a state that another state contains is read by its symbol.
    gradients : Symbols
        The symbols of the gradients with respect to the new states.
    kept : Definitions
        The values that the forward pass stores for the backward pass, by symbol.
    separate : tuple of int
        Gates whose recurrent sum has a gradient of its own.
    by_x, by_u, by_before, by_p : tuple of Expression
        Gradients: by every x; the separate gates' u; former states, but for what goes through W_hh; unit
        parameters.
    among : Table
        C: (new state, new state that it reads) -> coefficient.
    gates : Table
        U: (new state, which of the recurrent gates) -> coefficient.
    direct : Table
        D: (new state, former state) -> coefficient.
    """

    traced: TracedStep
    definitions: Definitions
    after: Symbols
    gradients: Symbols
    kept: Definitions
    separate: tuple[int, ...]
    by_x: tuple[Expression, ...]
    by_u: tuple[Expression, ...]
    by_before: tuple[Expression, ...]
    by_p: tuple[Expression, ...]
    among: Table
    gates: Table
    direct: Table


def derive(traced: TracedStep, output: int) -> Derivation:
    """Gradients, coefficients and what the forward pass stores for them; see `form_of` for `output`."""
    cell, recurrent = traced.cell, traced.cell.recurrent_gates
    steps, sums = _by_sums(traced)
    summed = {gate: sympy.Symbol(f"a.{cell.gates[gate]}", real=True) for gate in sums}
    after = _named("n", cell.states)
    forward: Definitions = dict(zip(after, _with_states(after, steps), strict=True))
    gradients = _named("g", cell.states)
    backward: Definitions = {}
    seeds, by_output = dict(zip(after, gradients, strict=True)), sympy.Symbol("k.output", real=True)
    if output:
        seeds[after[output]] += by_output
    by = _accumulate(seeds, forward, backward, "by")
    separate = tuple(gate for gate in recurrent if gate not in summed)
    u_of = {**dict(zip(recurrent, traced.u, strict=True)), **summed}
    by_x = [by.get(summed.get(gate, x), sympy.Integer(0)) for gate, x in enumerate(traced.x)]
    by_others = [
        [by.get(symbol, sympy.Integer(0)) for symbol in symbols]
        for symbols in ([u_of[gate] for gate in separate], traced.before, traced.p)
    ]
    tables: tuple[Table, Table, Table] = ({}, {}, {})
    for row, symbol in enumerate(after):
        derivatives = _accumulate({forward[symbol]: sympy.Integer(1)}, {}, backward, f"j{row}")
        for table, symbols in zip(tables, (after, [u_of[g] for g in recurrent], traced.before), strict=True):
            for place, other in enumerate(symbols):
                if derivatives.get(other, 0) != 0:
                    table[row, place] = derivatives[other]
    # The backward pass has the new states, and what is stored.
    states = {value: symbol for symbol, value in forward.items() if value.args}
    wanted = [*by_x, *(expression for group in by_others for expression in group)]
    wanted += [value for table in tables for value in table.values()]
    varying = {*traced.x, *traced.u, *summed.values()}
    stored = _stored((expression.xreplace(states) for expression in reached(wanted, backward)), varying)
    stored_values = {sympy.Symbol(f"k.{place}", real=True): value for place, value in enumerate(stored)}
    symbol_of = {value: symbol for symbol, value in stored_values.items()}
    if output:
        stored_values[by_output] = sympy.Integer(0)

    def known(value: Expression) -> Expression:
        return value.xreplace(states).xreplace(symbol_of)

    definitions = {**forward, **{symbol: known(value) for symbol, value in backward.items()}}
    definitions |= {a: traced.x[gate] + traced.u[recurrent.index(gate)] for gate, a in summed.items()}
    rest: list[Any] = [tuple(map(known, values)) for values in (by_x, *by_others)]
    rest += [{place: known(value) for place, value in table.items()} for table in tables]
    return Derivation(traced, definitions, after, gradients, stored_values, separate, *rest)


def _named(letter: str, names: Iterable[str]) -> Symbols:
    return tuple(sympy.Symbol(f"{letter}.{name}", real=True) for name in names)


def _by_sums(traced: TracedStep) -> tuple[list[Expression], list[int]]:
    """The new states, by a symbol of x + u for each gate of which they read nothing else; and these gates."""
    steps, sums = [in_functions(step) for step in traced.after], []
    for gate, u in zip(traced.cell.recurrent_gates, traced.u, strict=True):
        x, total = traced.x[gate], sympy.Symbol(f"a.{traced.cell.gates[gate]}", real=True)
        replaced = [step.xreplace({u: total - x}) for step in steps]
        symbols = set().union(*(step.free_symbols for step in replaced))
        if x not in symbols and total in symbols:
            steps = replaced
            sums.append(gate)
    return steps, sums


def _with_states(symbols: Symbols, steps: Sequence[Expression]) -> list[Expression]:
    """The new states, each by the symbols of the others where it contains them."""
    result = []
    for place, step in enumerate(steps):
        others = [
            (other, symbol)
            for number, (other, symbol) in enumerate(zip(steps, symbols, strict=True))
            if other.args and (number < place or (number > place and other != step))
        ]
        for other, symbol in sorted(others, key=lambda pair: -sympy.count_ops(pair[0])):
            step = symbol if step == other else by_symbol(step, other, symbol)
        result.append(step)
    return result


def by_symbol(expression: Expression, part: Expression, symbol: sympy.Symbol) -> Expression:
    """`expression` with `symbol` wherever `part` is in it, also among other terms or factors."""

    def holds(other: Expression) -> bool:
        return bool(part.args) and other.func == part.func and set(part.args) < set(other.args)

    def replaced(other: Expression) -> Expression:
        return other.func(symbol, *(argument for argument in other.args if argument not in part.args))

    replaced_sum = expression.xreplace({part: symbol})
    return replaced_sum.replace(holds, replaced) if part.is_Add or part.is_Mul else replaced_sum


def _accumulate(
    seeds: Mapping[Expression, Expression], forward: Definitions, backward: Definitions, label: str
) -> dict[sympy.Symbol, Expression]:
    """Gradients with respect to all leaves from those with respect to `seeds`. Symbols in `forward` stand for
    their expressions; sums and products become symbols in `backward`, whose names begin with `label`."""
    order: dict[Expression, None] = {}

    def visit(node: Expression) -> None:
        if node not in order:
            for operand in [forward[node]] if node in forward else [part for part, _ in _partials(node)]:
                visit(operand)
            order[node] = None

    for seed in seeds:
        visit(seed)
    terms: dict[Expression, list[Expression]] = {node: [seed] for node, seed in seeds.items()}
    result = {}
    for node in reversed(order):
        total = sympy.Add(*terms.get(node, ()))
        # What a branch masks stays together: 0 times an infinite derivative is NaN.
        if total.args and not any(map(is_mask, sympy.Mul.make_args(total))):
            symbol = sympy.Symbol(f"{label}.{len(backward):03}", real=True)
            backward[symbol], total = total, symbol
        result[node] = total
        for operand, partial in [(forward[node], 1)] if node in forward else _partials(node):
            terms.setdefault(operand, []).append(total * partial)
    return {node: total for node, total in result.items() if node.is_Symbol}


def _partials(node: Expression) -> Iterator[tuple[Expression, Expression]]:
    """The operands of an expression that are not fixed, with the derivatives with respect to them."""
    if isinstance(node, sympy.Piecewise):
        for place, (value, _) in enumerate(node.args):
            if value.free_symbols:
                chosen = ((int(n == place), branch.cond) for n, branch in enumerate(node.args))
                yield value, sympy.Piecewise(*chosen)
        return
    for place, operand in enumerate(node.args):
        if not operand.free_symbols:
            continue
        others = node.args[:place] + node.args[place + 1 :]
        if node.is_Add or node.is_Mul:
            yield operand, sympy.Integer(1) if node.is_Add else sympy.Mul(*others)
        else:
            x = sympy.Symbol("operand", real=True)
            of_x = node.func(*node.args[:place], x, *node.args[place + 1 :])
            yield operand, in_functions(sympy.diff(of_x, x)).xreplace({x: operand})


def reached(wanted: Iterable[Expression], definitions: Definitions) -> list[Expression]:
    """These expressions, and those of the symbols that they are made of."""
    visited: dict[Expression, None] = {}

    def visit(expression: Expression) -> None:
        if expression not in visited:
            visited[expression] = None
            for symbol in sorted(expression.free_symbols, key=str):
                if symbol in definitions:
                    visit(definitions[symbol])

    for expression in wanted:
        visit(expression)
    return list(visited)


def _stored(expressions: Iterable[Expression], varying: set[sympy.Symbol]) -> list[Expression]:
    """What the forward pass stores: the outermost functions of input and recurrent sums in these, and such
    sums themselves where they are read outside of a function."""
    stored: dict[Expression, None] = {}

    def visit(expression: Expression) -> None:
        if expression in varying or (type(expression) in FUNCTIONS and expression.free_symbols & varying):
            stored[expression] = None
        elif expression.free_symbols & varying:
            for part in expression.args:
                visit(part)

    for expression in expressions:
        visit(expression)
    return list(stored)


def form_of(cell: Cell) -> CellForm:
    """Derive and write a cell; raises CellError as `trace` does. The same texts in every run.

    W_hh multiplies the first state, and frames add gradients with respect to outputs to those of the first
    state. If the output is another state, the cell saves a last row of zeros, and its backward function adds
    that row to the gradient with respect to the output. `Stack` writes the gradient there.
    """
    traced = trace(cell)
    derived = derive(traced, cell.output)
    functions = functions_of("\n\n\n".join(_texts(derived)), Functions)
    dense, diagonal = _blocks(derived)
    states = len(cell.states)
    backward = [*derived.by_x, *derived.by_u, *derived.by_before, *derived.by_p, *_varying(derived)]
    inner = {symbol: value for symbol, value in derived.definitions.items() if symbol not in derived.after}
    read = set().union(*(value.free_symbols for value in reached(backward, inner)))
    after = tuple(place for place, symbol in enumerate(derived.after) if symbol in read)
    before = tuple(place for place, symbol in enumerate(traced.before) if symbol in read)
    return CellForm(
        cell.name, len(cell.gates), states, len(derived.kept), len(cell.parameters),
        derived.separate, after, before, len(_varying(derived)), dense, diagonal,
        columns=4 if states == 1 else 2, tile_columns=8 if states == 1 else 4, functions=functions,
        recurrent=None if cell.recurrent == cell.gates else cell.recurrent_gates,
    )  # fmt: skip


def _varying(derived: Derivation) -> list[Expression]:
    """The coefficients of a step's Jacobian that are no fixed numbers, each once."""
    tables = (derived.among, derived.gates, derived.direct)
    return list(dict.fromkeys(value for table in tables for value in table.values() if not value.is_number))


def _texts(derived: Derivation) -> list[str]:
    """The functions of a cell, in the order of `Functions`."""
    traced, stored, varying = derived.traced, tuple(derived.kept), _varying(derived)
    states, gates = len(derived.after), len(traced.u)
    forward = {"x": traced.x, "u": traced.u, "before": traced.before, "p": traced.p}
    back = {"saved": stored, "after": derived.after, "before": traced.before, "p": traced.p}
    a, x, w = _symbols("a", len(varying)), _symbols("x", states), _symbols("w", gates)

    def coefficient(table: Table, row: int, column: int) -> Expression:
        value = table.get((row, column), sympy.Integer(0))
        return value if value.is_number else a[varying.index(value)]

    entered: list[Expression] = list(x)
    # The recurrent gate that a new state reads, where it reads one and no former state directly.
    only: list[int | None] = [None] * states
    for state in {row for row, _ in derived.gates} - {row for row, _ in derived.direct}:
        read_gates = [gate for row, gate in derived.gates if row == state]
        only[state] = read_gates[0] if len(read_gates) == 1 else None
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
    definitions, like = derived.definitions, "saved[0]" if stored else "after[0]"
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


def _blocks(derived: Derivation) -> Sequence[tuple[tuple[int, int], ...]]:
    """Blocks (former state, new state) of the Jacobian through W_hh, and of what is read directly."""
    dense = {(0, state) for state, _ in derived.gates}
    diagonal = {(former, state) for state, former in derived.direct}
    for blocks in (dense, diagonal):
        while more := {(j, row) for row, other in derived.among for j, i in blocks if i == other} - blocks:
            blocks |= more
    return tuple(sorted(dense)), tuple(sorted(diagonal))


def linear_form(cell: Cell) -> LinearForm:
    """The form of a cell without recurrent gates. Raises CellError where its step is not affine in one former
    state, or puts out what is not made of its new value."""
    traced = trace(cell)
    states = cell.states
    read = set().union(*(expression.free_symbols for expression in traced.after))
    carried = [place for place, symbol in enumerate(traced.before) if symbol in read]
    if not carried:
        raise CellError(
            f"cell {cell.name!r} has no recurrent gates, and its step reads no previous state: "
            "read a state in the step, for example s.h, or use a layer that is not recurrent"
        )
    place = carried[0]
    before, after = traced.before[place], traced.after[place]
    factor = sympy.diff(after, before)
    slope = sympy.expand(factor)
    rest = sympy.expand(after - slope * before)
    state = sympy.Symbol(f"n.{states[place]}", real=True)
    results = [factor, after.xreplace({before: sympy.Integer(0)})]
    if place:
        results.append(by_symbol(traced.after[0], after, state))
    one_state = len(carried) == 1 and len(states) == 1 + (place != 0) and factor != 0
    if not one_state or before in (slope + rest).free_symbols | results[-1].free_symbols:
        raise CellError(
            f"cell {cell.name!r} has no recurrent gates, so its step must be linear: one state "
            "c' = a c + b and, listed before c, at most one other state that is a function of x, p and the "
            "new c. Change the step, or name recurrent gates"
        )
    functions = functions_of("\n\n\n".join(_linear_texts(traced, state, results)), LinearFunctions)
    return LinearForm(cell.name, len(cell.gates), len(cell.parameters), functions)


def _linear_texts(traced: TracedStep, state: sympy.Symbol, results: list[sympy.Expr]) -> list[str]:
    """The functions of the cell; where the state is put out itself, only the first and the last."""
    # As a step without recurrent sums, whose new states are factor, term and output.
    states = ("a", "b", "y")[: len(results)]
    cell = SimpleNamespace(gates=traced.cell.gates, states=states, recurrent_gates=())
    d = derive(TracedStep(cell, traced.x, (), (state,), traced.p, tuple(results)), 0)
    symbols = d.definitions | d.kept
    by_x, inputs = {"x": traced.x, "p": traced.p}, {"x": traced.x, "state": (state,), "p": traced.p}
    texts = [function_text("terms", by_x, (d.after[:1], d.after[1:2]), symbols, "x[0]")]
    if len(results) > 2:
        texts += [
            function_text("output", inputs, (d.after[2:],), symbols, "x[0]"),
            function_text("by_state", {"g": d.gradients[2:], **inputs}, (d.by_before,), symbols, "x[0]"),
        ]
    by_inputs = {"g": d.gradients, **inputs}
    return [*texts, function_text("by_inputs", by_inputs, (d.by_x, d.by_p), symbols, "x[0]")]

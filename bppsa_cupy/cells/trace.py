"""A cell's step as expressions of symbols: what it reads and gives, and that it is elementwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sympy

from bppsa_cupy.cells.definition import Definition
from bppsa_cupy.cells.symbolic import FUNCTIONS, Expression, plain
from bppsa_cupy.errors import CellError


@dataclass(frozen=True)
class TracedStep:
    """The step of one unit: a symbol for each projected input x, recurrent sum u, former state and unit
    parameter, called as the step calls it ("x.h"), and an expression of them for each new state."""

    definition: Definition
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


def trace(definition: Definition) -> TracedStep:
    """Call the step of a cell on symbols.

    Raises CellError, with the expression, where a new state is missing or no expression, where it holds
    anything but numbers, the cell's symbols and functions of one unit, and where nothing reads a gate or a
    parameter.
    """
    name = definition.name
    kinds = (
        ("x", "gates", definition.gates),
        ("u", "recurrent gates", tuple(definition.gates[gate] for gate in definition.recurrent_gates)),
        ("s", "states", definition.states),
        ("p", "parameters", definition.parameters),
    )
    arguments = [_Symbols(name, *kind) for kind in kinds]
    try:
        result = definition.step(*arguments)
    except (TypeError, AttributeError) as error:
        raise CellError(
            f"the step of cell {name!r} fails on symbols ({error}): use SymPy functions, such as "
            "sympy.tanh(x.h + u.h), and Piecewise instead of `if`"
        ) from error
    after = tuple(plain(_expression(name, state, value)) for state, value in _by_state(definition, result))
    known = [tuple(symbols._symbols.values()) for symbols in arguments]
    for state, expression in zip(definition.states, after, strict=True):
        _check(name, state, expression, {symbol for symbols in known for symbol in symbols})
    read = set().union(*(expression.free_symbols for expression in after))
    sums = dict(zip(definition.recurrent_gates, known[1], strict=True))
    for place, gate in enumerate(definition.gates):
        taken = [known[0][place], *([sums[place]] if place in sums else [])]
        if not read & set(taken):
            none = f"neither {taken[0]} nor {taken[1]}" if len(taken) > 1 else f"no {taken[0]}"
            raise CellError(
                f"the step of cell {name!r} reads {none}: use the gate in the step, or remove {gate!r} from "
                "gates"
            )
    for parameter, symbol in zip(definition.parameters, known[3], strict=True):
        if symbol not in read:
            raise CellError(
                f"the step of cell {name!r} does not read {symbol}: use the parameter in the step, or remove "
                f"{parameter!r} from parameters"
            )
    x, u, before, p = known
    return TracedStep(definition, x, u, before, p, after)


def _by_state(definition: Definition, result: object) -> list[tuple[str, object]]:
    """The new states that a step gave, in order."""
    name, states = definition.name, definition.states
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

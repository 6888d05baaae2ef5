"""A step as a graph of named values: each is a function of symbols, or a polynomial of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import sympy

from bppsa_cupy.cells.symbolic import FUNCTIONS, Expression, Maximum, Minimum, Reciprocal, Root
from bppsa_cupy.cells.trace import TracedStep


class Graph:
    """The values of a cell's step, each once, and the partial derivatives between them.

    values     symbol -> its expression in symbols that stand before it, or in leaves
    after      the new states' symbols; a state that another one contains is read there by its symbol
    sums       gate -> the symbol of x + u, where the step reads no other combination of the two
    partials   (value, operand) -> the derivative, a number or a symbol; those of one value have no order
    """

    def __init__(self, traced: TracedStep) -> None:
        self.trace = traced
        self.values: dict[sympy.Symbol, Expression] = {}
        self.partials: dict[tuple[sympy.Symbol, sympy.Symbol], Expression] = {}
        self._named: dict[Expression, sympy.Symbol] = {}
        expressions = list(traced.after)
        self.sums: dict[int, sympy.Symbol] = {}
        for gate, u in zip(traced.definition.recurrent_gates, traced.u, strict=True):
            x = traced.x[gate]
            summed = sympy.Symbol(f"a.{traced.definition.gates[gate]}", real=True)
            found = [_of_sum(expression, x, u, summed) for expression in expressions]
            if None not in found and not all(map(sympy.Expr.__eq__, found, expressions)):
                expressions, self.sums[gate] = found, summed
                self.values[summed] = x + u
        self.after = tuple(sympy.Symbol(f"n.{state}", real=True) for state in traced.definition.states)
        self._states: dict[Expression, sympy.Symbol] = {}
        for symbol, expression in zip(self.after, expressions, strict=True):
            if expression.args:
                self._states.setdefault(expression, symbol)
        self._pending = dict(zip(self.after, expressions, strict=True))
        self._parents = _parents_of(expressions)
        for symbol in self.after:
            self._visit_state(symbol)
        for value in list(self.values):
            self._differentiate(value)

    def _visit_state(self, symbol: sympy.Symbol) -> None:
        if symbol in self._pending:
            expression = self._pending.pop(symbol)
            other = self._states.get(expression, symbol)
            if other != symbol:
                expression = self._reference(other)
            self.values[symbol] = self._reduced(expression) if expression.args else expression

    def _reference(self, state: sympy.Symbol) -> sympy.Symbol:
        self._visit_state(state)
        return state

    def visit(self, expression: Expression) -> Expression:
        """`expression` in symbols, a polynomial; what it holds else becomes values."""
        if expression in self._states:
            return self._reference(self._states[expression])
        if not expression.args or expression.is_number:
            return expression
        if expression in self._named:
            return self._named[expression]
        if self._parents[expression] > 1 and not _is_trivial(expression):
            return self._name(expression, self._reduced(expression))
        reduced = self._reduced(expression)
        return self._name(expression, reduced) if not _is_polynomial(reduced) else reduced

    def _name(self, expression: Expression, reduced: Expression) -> sympy.Symbol:
        symbol = sympy.Symbol(f"v.{len(self.values):03}", real=True)
        self.values[symbol] = reduced
        self._named[expression] = symbol
        return symbol

    def _reduced(self, expression: Expression) -> Expression:
        """The expression, its arguments visited: a polynomial, or one function of symbols."""
        if expression.is_Add:
            return sympy.Add(*(self.visit(term) for term in self._with_states(expression)))
        if expression.is_Mul:
            return sympy.Mul(*(self.visit(factor) for factor in self._with_states(expression)))
        if expression.is_Pow:
            return self._power(*expression.args)
        if isinstance(expression, sympy.Max | sympy.Min):
            kind = Maximum if isinstance(expression, sympy.Max) else Minimum
            *others, last = sorted(
                expression.args, key=lambda part: (part.is_number, sympy.default_sort_key(part))
            )
            first = others[0] if len(others) == 1 else expression.func(*others)
            return kind(self._atom(first), self._atom(last))
        if isinstance(expression, sympy.Piecewise):
            return sympy.Piecewise(
                *((self.visit(value), self._condition(condition)) for value, condition in expression.args)
            )
        assert type(expression) in FUNCTIONS, expression
        return expression.func(*(self._atom(argument) for argument in expression.args))

    def _with_states(self, whole: Expression) -> list[Expression]:
        """The terms of a sum or the factors of a product, those that make a state taken together."""
        parts = list(whole.args)
        for state in self._states:
            if state.func == whole.func and set(state.args) < set(parts):
                parts = [part for part in parts if part not in state.args] + [state]
        return parts

    def _power(self, base: Expression, exponent: Expression) -> Expression:
        """A power: of the base, its root or their reciprocals by products, else by e^(exponent log(base))."""
        if exponent.is_Rational and exponent.q <= 2:
            if exponent == -1 or exponent == sympy.Rational(-1, 2):
                return Reciprocal(self._atom(base if exponent == -1 else sympy.sqrt(base)))
            if exponent == sympy.Rational(1, 2):
                return Root(self._atom(base))
            unit = sympy.Rational(1 if exponent > 0 else -1, exponent.q)
            return self.visit(sympy.Pow(base, unit)) ** abs(exponent.p)
        return self._reduced(sympy.exp(exponent * sympy.log(base), evaluate=False))

    def _condition(self, condition: Expression) -> Expression:
        if condition.is_Relational:
            return condition.func(*(self.visit(side) for side in condition.args))
        return condition.func(*map(self._condition, condition.args)) if condition.args else condition

    def _atom(self, expression: Expression) -> Expression:
        reduced = self.visit(expression)
        return reduced if not reduced.args or reduced.is_number else self._name(expression, reduced)

    def _differentiate(self, value: sympy.Symbol) -> None:
        expression = self.values[value]
        for operand in sorted(expression.free_symbols, key=str):
            derivative = sympy.diff(expression, operand).xreplace({expression: value})
            if derivative != 0:
                self.partials[value, operand] = self._atom(derivative)


def _of_sum(
    expression: Expression, x: sympy.Symbol, u: sympy.Symbol, total: sympy.Symbol
) -> Expression | None:
    """`expression` of x and u as one of total = x + u, or None where it depends on more than their sum."""
    result = expression.xreplace({u: total - x})
    if x in result.free_symbols:
        result = (
            sympy.expand(result)
            if result.is_polynomial(x, total)
            else result.replace(lambda part: part.is_Add or part.is_Mul, lambda part: sympy.expand(part))
        )
    return None if x in result.free_symbols else result


def _parents_of(expressions: list[Expression]) -> Counter[Expression]:
    """In how many expressions each one stands, the given ones and all they hold counted once each."""
    seen: set[Expression] = set()
    parents: Counter[Expression] = Counter()

    def walk(expression: Expression) -> None:
        if expression not in seen:
            seen.add(expression)
            for part in expression.args:
                parents[part] += 1
                walk(part)

    for expression in expressions:
        walk(expression)
    return parents


def _is_trivial(expression: Expression) -> bool:
    """Whether it is a number times a symbol."""
    return bool(expression.is_Mul and len(expression.args) == 2 and expression.args[0].is_number)


def _is_polynomial(expression: Expression) -> bool:
    return not isinstance(expression, (*FUNCTIONS, sympy.Piecewise))


def operands(expression: Expression) -> Iterator[sympy.Symbol]:
    """The symbols of an expression, in the order of their names."""
    yield from sorted(expression.free_symbols, key=str)

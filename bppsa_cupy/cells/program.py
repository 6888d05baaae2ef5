"""Straight-line programs: outputs as expressions of temporaries and inputs, with nothing computed twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import sympy

from bppsa_cupy.cells.symbolic import FUNCTIONS, Expression, Maximum, Minimum, Reciprocal


@dataclass(frozen=True)
class Program:
    """assignments  (temporary, expression of inputs and temporaries before it), in order
    outputs      expressions of inputs and temporaries
    """

    assignments: tuple[tuple[sympy.Symbol, Expression], ...]
    outputs: tuple[Expression, ...]

    def symbols(self) -> set[sympy.Symbol]:
        """All symbols that are read."""
        expressions = [expression for _, expression in self.assignments] + list(self.outputs)
        return set().union(*(expression.free_symbols for expression in expressions))


def make_program(
    definitions: Mapping[sympy.Symbol, Expression],
    outputs: Iterable[Expression],
    inputs: Iterable[sympy.Symbol],
    first: Iterable[sympy.Symbol] = (),
) -> Program:
    """The program that computes `outputs` from `inputs`, by `definitions` of symbols that are no inputs; what
    `first` needs of these comes first.

    Functions that are read more than once and common subexpressions have temporaries: equal ones, and
    products of two factors that stand in several products. Of equal input, equal programs.

    SymPy's `cse` would take one more product in three cells, write max(x, 0) with x twice, and lose the names
    of values.
    """
    given = set(inputs)
    wanted = [sympy.sympify(output) for output in outputs]
    known = {symbol: value for symbol, value in definitions.items() if symbol not in given}
    parts = _Parts(known, wanted, tuple(first))
    parts.inline()
    while parts.share_equal() or parts.share_factors():
        pass
    parts.inline()
    return Program(tuple(parts.ordered()), tuple(parts.outputs))


class _Parts:
    """Temporaries and outputs while they are rewritten."""

    def __init__(
        self,
        definitions: Mapping[sympy.Symbol, Expression],
        outputs: list[Expression],
        first: tuple[sympy.Symbol, ...],
    ) -> None:
        self.definitions, self.outputs, self.first = dict(definitions), outputs, first
        self.count = 0

    def ordered(self) -> list[tuple[sympy.Symbol, Expression]]:
        """The temporaries that outputs need, each where it is first needed."""
        done: dict[sympy.Symbol, Expression] = {}

        def take(expression: Expression) -> None:
            for symbol in sorted(expression.free_symbols, key=str):
                if symbol in self.definitions and symbol not in done:
                    take(self.definitions[symbol])
                    done[symbol] = self.definitions[symbol]

        for output in (*self.first, *self.outputs):
            take(output)
        needed: set[sympy.Symbol] = set().union(*(output.free_symbols for output in self.outputs))
        for symbol in reversed(done):
            if symbol in needed:
                needed |= done[symbol].free_symbols
        return [(symbol, value) for symbol, value in done.items() if symbol in needed]

    def replace(self, changes: Mapping[Expression, Expression]) -> None:
        self.definitions = {
            symbol: value if symbol in changes.values() else value.xreplace(changes)
            for symbol, value in self.definitions.items()
        }
        self.outputs = [output.xreplace(changes) for output in self.outputs]

    def inline(self) -> None:
        """Write temporaries that are read once, or are but a number or a symbol, where they are read."""
        while True:
            ordered = self.ordered()
            reads: Counter[sympy.Symbol] = Counter()
            for expression in [value for _, value in ordered] + self.outputs:
                _count_reads(expression, reads)
            found = next(
                (
                    (symbol, value)
                    for symbol, value in ordered
                    if not value.args
                    or (-value).is_Symbol
                    or (reads[symbol] == 1 and (symbol in self.outputs or _is_inlined(value)))
                ),
                None,
            )
            if found is None:
                self.definitions = dict(ordered)
                return
            del self.definitions[found[0]]
            self.replace({found[0]: found[1]})

    def expressions(self) -> list[Expression]:
        return [value for _, value in self.ordered()] + self.outputs

    def name(self, expression: Expression) -> sympy.Symbol:
        symbol = sympy.Symbol(f"t.{self.count:03}", real=True)
        self.count += 1
        self.definitions[symbol] = expression
        return symbol

    def share_equal(self) -> bool:
        """Give an expression that stands in several places a temporary; whether there was one."""
        for symbol, value in self.ordered():
            if any(_holds(other, value) for other in self.expressions() if other is not value):
                self.replace({value: symbol})
                return True
        counts: Counter[Expression] = Counter()
        for expression in self.expressions():
            for part in sympy.preorder_traversal(expression):
                if part.args and isinstance(part, sympy.Expr) and not (part.is_number or _is_cheap(part)):
                    counts[part] += 1
        twice = [part for part, count in counts.items() if count > 1]
        if not twice:
            return False
        largest = max(twice, key=lambda part: (sympy.count_ops(part), str(part)))
        symbol = self.name(largest)
        self.replace({largest: symbol})
        return True

    def share_factors(self) -> bool:
        """Give the pair of factors that most products hold a temporary; whether there was one."""
        products = [
            part
            for expression in self.expressions()
            for part in sympy.preorder_traversal(expression)
            if isinstance(part, sympy.Mul)
        ]
        counts: Counter[tuple[Expression, Expression]] = Counter()
        for product in products:
            pairs = combinations(sorted(_factors(product), key=sympy.default_sort_key), 2)
            counts.update({pair for pair in pairs if not any(is_mask(factor) for factor in pair)})
        twice = [pair for pair, count in counts.items() if count > 1]
        if not twice:
            return False
        pair = min(twice, key=lambda pair: (-counts[pair], tuple(map(str, pair))))
        symbol = self.name(sympy.Mul(*pair))
        changes = {product: _divided(product, pair) * symbol for product in products if _has(product, pair)}
        self.replace(changes)
        self.definitions[symbol] = sympy.Mul(*pair)
        return True


def _count_reads(expression: Expression, reads: Counter[sympy.Symbol]) -> None:
    if expression.is_Symbol:
        reads[expression] += 1
    elif expression.is_Pow:
        for _ in range(int(expression.exp)):
            _count_reads(expression.base, reads)
    else:
        # Texts write the arguments of these twice, in a condition and as the value.
        for part in expression.args * (2 if isinstance(expression, Maximum | Minimum) else 1):
            _count_reads(part, reads)


def _holds(expression: Expression, part: Expression) -> bool:
    return bool(part.args) and not part.is_number and part in sympy.preorder_traversal(expression)


def _is_inlined(value: Expression) -> bool:
    """Whether a value that is read once has no line of its own: sums, products, quotients and masks."""
    return (
        isinstance(value, Reciprocal)
        or is_mask(value)
        or not isinstance(value, (*FUNCTIONS, sympy.Piecewise))
    )


def is_mask(value: Expression) -> bool:
    """Whether it is 1 under a condition, else 0: a factor that selects."""
    return isinstance(value, sympy.Piecewise) and [branch for branch, _ in value.args] == [1, 0]


def _is_cheap(part: Expression) -> bool:
    return bool((-part).is_Symbol)


def _factors(product: Expression) -> list[Expression]:
    """The factors of a product but for a number, a power's base as often as it counts."""
    factors: list[Expression] = []
    for factor in product.args:
        if factor.is_Pow:
            factors += [factor.base] * int(factor.exp)
        elif not factor.is_number:
            factors.append(factor)
    return factors


def _has(product: Expression, pair: tuple[Expression, Expression]) -> bool:
    return not Counter(pair) - Counter(_factors(product))


def _divided(product: Expression, pair: tuple[Expression, Expression]) -> Expression:
    """The product without one factor of each of a pair."""
    rest = list((Counter(_factors(product)) - Counter(pair)).elements())
    return sympy.Mul(*[factor for factor in product.args if factor.is_number], *rest)

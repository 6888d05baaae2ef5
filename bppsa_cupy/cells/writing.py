"""Expressions as text, for twins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import sympy

from bppsa_cupy.cells.program import is_mask
from bppsa_cupy.cells.symbolic import NAMES, Expression, Maximum, Minimum, Reciprocal

ATOM, PRODUCT, SUM = range(3)


class Text(NamedTuple):
    """A text and how loosely its outermost operator binds."""

    text: str
    binding: int = ATOM

    def within(self, binding: int) -> str:
        """The text, in brackets where it binds more loosely than its place."""
        return f"({self.text})" if self.binding > binding else self.text


class Term(NamedTuple):
    """One term of a sum, without its sign: factors, and what divides them."""

    negative: bool
    factors: tuple[Text, ...]
    divisors: tuple[Text, ...]

    @property
    def is_product(self) -> bool:
        return len(self.factors) > 1 and not self.divisors


class TwinWriter:
    """Writes expressions for Numba, products fused into sums by `multiply_add`.

    names      the texts of symbols
    constants, used  gather what a text names: numbers, and (module, function) of twins
    """

    def __init__(self, names: Mapping[sympy.Symbol, str]) -> None:
        self.names = names
        self.constants: dict[float, str] = {}
        self.used: set[tuple[str, str]] = set()

    def write(self, expression: Expression) -> Text:
        """The text of an expression of symbols, numbers and functions of `NAMES`."""
        if expression.is_Symbol:
            return Text(self.names[expression])
        if expression.is_number:
            value = float(expression)
            return Text(self.constant(value)) if value >= 0 else Text(f"-{self.constant(-value)}", PRODUCT)
        if isinstance(expression, sympy.Piecewise):
            return self._branches(list(expression.args))
        if isinstance(expression, Maximum | Minimum):
            x, y = map(self.write, expression.args)
            small, large = (x, y) if isinstance(expression, Maximum) else (y, x)
            return self.select(f"{small.within(SUM)} <= {large.within(SUM)}", y, x)
        if isinstance(expression, Reciprocal):
            return self.product(Term(False, (), (self.write(expression.args[0]),)))
        if type(expression) in NAMES:
            return Text(self.call(type(expression), self.write(expression.args[0]).text))
        if expression.is_Add:
            terms = [self._term(term) for term in expression.args]
            return self.total(sorted(terms, key=lambda term: (term.negative, term.is_product, term)))
        masks = [factor for factor in expression.args if is_mask(factor)]
        if masks:
            rest = sympy.Mul(*(factor for factor in expression.args if factor is not masks[0]))
            return self._branches([(rest, masks[0].args[0][1]), (sympy.Integer(0), sympy.true)])
        return self.product(self._term(expression))

    def product(self, term: Term) -> Text:
        """One term, with its sign."""
        texts = [factor.within(PRODUCT if place == 0 else ATOM) for place, factor in enumerate(term.factors)]
        text = " * ".join(texts) if texts else self.constant(1.0)
        for divisor in term.divisors:
            text += f" / {divisor.within(ATOM)}"
        is_atom = len(texts) == 1 and not term.divisors and not term.negative
        return Text("-" * term.negative + text, term.factors[0].binding if is_atom else PRODUCT)

    def _unsigned(self, term: Term) -> str:
        """A term after its sign."""
        return self.product(term._replace(negative=False)).within(PRODUCT)

    def _term(self, expression: Expression) -> Term:
        """An expression as a term: a product's factors, each by itself, or the expression alone."""
        negative, factors, divisors = False, [], []
        for part in sympy.Mul.make_args(expression):
            if part.is_number:
                negative ^= bool(part < 0)
                if abs(part) != 1:
                    factors.append(self.write(abs(part)))
            elif isinstance(part, Reciprocal):
                divisors.append(self.write(part.args[0]))
            elif part.is_Pow:
                factors += [self.write(part.base)] * int(part.exp)
            elif is_mask(part) and expression.is_Mul:
                return Term(False, (self.write(expression),), ())
            else:
                factors.append(self.write(part))
        return Term(negative, tuple(factors), tuple(divisors))

    def _branches(self, branches: list[tuple[Expression, Expression]]) -> Text:
        (value, condition), *rest = branches
        return self._chosen(condition, self.write(value), self._branches(rest)) if rest else self.write(value)

    def _chosen(self, condition: Expression, chosen: Text, other: Text) -> Text:
        """`chosen` under a condition; comparisons are <, <= and == alone, which lanes have."""
        if condition == sympy.true or condition == sympy.false:
            return chosen if condition == sympy.true else other
        if isinstance(condition, sympy.Not):
            return self._chosen(condition.args[0], other, chosen)
        if isinstance(condition, sympy.And | sympy.Or):
            first, *others = sorted(condition.args, key=str)
            rest = condition.func(*others)
            if isinstance(condition, sympy.And):
                return self._chosen(first, self._chosen(rest, chosen, other), other)
            return self._chosen(first, chosen, self._chosen(rest, chosen, other))
        left, right = (self.write(side).within(SUM) for side in condition.args)
        if isinstance(condition, sympy.Ne):
            return self.select(f"{left} == {right}", other, chosen)
        if isinstance(condition, sympy.Gt | sympy.Ge):
            left, right = right, left
        strict = isinstance(condition, sympy.Gt | sympy.Lt)
        operator = "==" if isinstance(condition, sympy.Eq) else "<" if strict else "<="
        return self.select(f"{left} {operator} {right}", chosen, other)

    def constant(self, value: float) -> str:
        known = {0.0: "zero", 1.0: "one", 2.0: "two", 0.5: "half"}
        return self.constants.setdefault(value, known.get(value, f"c{len(self.constants)}"))

    def call(self, function: type, argument: str) -> str:
        self.used.add((NAMES[function].module, NAMES[function].twin))
        return f"{NAMES[function].twin}({argument})"

    def select(self, condition: str, chosen: Text, other: Text) -> Text:
        self.used.add(("lanes", "select"))
        return Text(f"select({condition}, {chosen.text}, {other.text})")

    def total(self, terms: list[Term]) -> Text:
        first, *rest = terms
        total = self.product(first)
        for term in rest:
            if term.is_product:
                self.used.add(("lanes", "multiply_add"))
                *factors, last = term.factors
                product = self.product(Term(term.negative, tuple(factors), ()))
                total = Text(f"multiply_add({product.text}, {last.text}, {total.text})")
            else:
                sign = "-" if term.negative else "+"
                total = Text(
                    f"{total.within(SUM)} {sign} {self._unsigned(term)}",
                    SUM,
                )
        return total

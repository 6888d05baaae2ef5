"""The functions that texts of cells know, as SymPy's or with derivatives with respect to their own values."""

from __future__ import annotations

from functools import reduce
from typing import Any

import sympy
from sympy.core.evalf import prec_to_dps

#: A SymPy expression; SymPy's own types say too little to be checked.
Expression = Any


class Own(sympy.Function):
    """A function of ours, whose value at numbers is that of the same in SymPy's own terms."""

    def terms(self) -> Expression:
        """The same expression in SymPy's own functions."""
        raise NotImplementedError

    def _eval_evalf(self, prec: int) -> Expression:
        return self.terms().evalf(prec_to_dps(prec))


class Sigmoid(Own):
    """1 / (1 + e^-x)"""

    nargs = 1
    is_real = True

    def terms(self) -> Expression:
        return 1 / (1 + sympy.exp(-self.args[0]))

    def fdiff(self, argindex: int = 1) -> Expression:
        return self * (1 - self)


class Reciprocal(Own):
    """1 / x"""

    nargs = 1

    def terms(self) -> Expression:
        return 1 / self.args[0]

    def fdiff(self, argindex: int = 1) -> Expression:
        return -(self**2)


class Root(Own):
    """The square root of x."""

    nargs = 1

    def terms(self) -> Expression:
        return sympy.sqrt(self.args[0])

    def fdiff(self, argindex: int = 1) -> Expression:
        return Reciprocal(self) / 2


class Maximum(Own):
    """max(x, y): of a number y, the derivative is that of x where the value is above it, else 0."""

    nargs = 2

    def terms(self) -> Expression:
        return sympy.Max(*self.args)

    def fdiff(self, argindex: int = 1) -> Expression:
        x, y = self.args
        by_x = sympy.Piecewise((1, self > y if y.is_number else x > y), (0, True))
        return by_x if argindex == 1 else 1 - by_x


class Minimum(Own):
    """min(x, y): of a number y, the derivative is that of x where the value is below it, else 0."""

    nargs = 2

    def terms(self) -> Expression:
        return sympy.Min(*self.args)

    def fdiff(self, argindex: int = 1) -> Expression:
        x, y = self.args
        by_x = sympy.Piecewise((1, self < y if y.is_number else x < y), (0, True))
        return by_x if argindex == 1 else 1 - by_x


class Magnitude(Own):
    """|x|, whose derivative at 0 is 0."""

    nargs = 1

    def terms(self) -> Expression:
        return sympy.Abs(self.args[0])

    def fdiff(self, argindex: int = 1) -> Expression:
        x = self.args[0]
        return sympy.Piecewise((1, x > 0), (-1, x < 0), (0, True))


#: Functions of one number, by the names that twins have them by.
NAMES: dict[type, str] = {
    sympy.tanh: "tanh",
    Sigmoid: "sigmoid",
    sympy.exp: "exponential",
    sympy.log: "logarithm",
    sympy.sin: "sine",
    sympy.cos: "cosine",
    Root: "sqrt",
    Magnitude: "magnitude",
}

#: All functions of a step's graph: those of texts, and those that are written with operators and conditions.
FUNCTIONS = (*NAMES, Reciprocal, Maximum, Minimum)


def plain(expression: Expression) -> Expression:
    """`expression` with 1 / (1 + e^-x) as a sigmoid, which neither overflows nor cancels, mixtures by one
    product, and Abs, sign, Heaviside, sinh and cosh by what texts know."""

    def is_logistic(part: Expression) -> bool:
        return bool(
            part.is_Pow
            and part.exp == -1
            and part.base.is_Add
            and len(part.base.args) == 2
            and part.base.args[0] == 1
            and isinstance(part.base.args[1], sympy.exp)
        )

    expression = expression.replace(is_logistic, lambda part: Sigmoid(-part.base.args[1].args[0]))
    expression = expression.replace(sympy.sinh, lambda x: (sympy.exp(x) - sympy.exp(-x)) / 2)
    expression = expression.replace(sympy.cosh, lambda x: (sympy.exp(x) + sympy.exp(-x)) / 2)
    expression = expression.replace(sympy.Abs, Magnitude)
    expression = expression.replace(lambda part: part.is_Add, _mixed)
    return expression.rewrite([sympy.sign, sympy.Heaviside], sympy.Piecewise)


def _mixed(total: Expression) -> Expression:
    """A sum with (1 - q) a + q b as a + q (b - a), wherever it stands among the terms."""
    for term in total.args:
        for factor in sympy.Mul.make_args(term):
            q = 1 - factor
            if not factor.is_Add or len(factor.args) != 2 or not (q.is_Symbol or q.is_Function):
                continue
            for other in total.args:
                if other is not term and q in sympy.Mul.make_args(other):
                    a, b = term / factor, other / q
                    rest = [part for part in total.args if part is not term and part is not other]
                    return total if a.is_Add else _mixed(sympy.Add(*rest, a, q * (b - a)))
    return total


def in_functions(expression: Expression) -> Expression:
    """A `plain` expression with powers, maxima and minima by the functions of texts."""

    def power(part: Expression) -> Expression:
        base, exponent = part.args
        if not exponent.is_Rational or exponent.q > 2:
            return sympy.exp(exponent * sympy.log(base))
        root = base if exponent.q == 1 else Root(base)
        return (root if exponent > 0 else Reciprocal(root)) ** abs(exponent.p)

    def extreme(part: Expression) -> Expression:
        kind = Maximum if isinstance(part, sympy.Max) else Minimum
        return reduce(kind, sorted(part.args, key=lambda a: (a.is_number, sympy.default_sort_key(a))))

    expression = expression.replace(lambda part: part.is_Pow and not part.is_number, power)
    return expression.replace(lambda part: isinstance(part, sympy.Max | sympy.Min), extreme)


def is_mask(value: Expression) -> bool:
    """Whether it is 1 under some conditions and else 0: a factor that selects."""
    return isinstance(value, sympy.Piecewise) and {branch for branch, _ in value.args} <= {0, 1}

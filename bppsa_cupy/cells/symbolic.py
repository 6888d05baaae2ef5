"""The functions that texts of cells know, as SymPy's or with derivatives with respect to their own values."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import sympy
from sympy.core.evalf import prec_to_dps

#: A SymPy expression; SymPy's own types say too little to be checked.
Expression = Any


def _function(
    name: str, terms: Callable[..., Expression], *partials: Callable[..., Expression], **more: Any
) -> Any:
    """Return a class of SymPy functions: `terms` gives the value in functions of SymPy.

    `partials` give the derivatives with respect to the arguments, from the function itself and its arguments.
    """

    def evaluate(self: Expression, prec: int) -> Expression:
        return terms(*self.args).evalf(prec_to_dps(prec))

    def fdiff(self: Expression, argindex: int = 1) -> Expression:
        return partials[argindex - 1](self, *self.args)

    methods = {"nargs": len(partials), "_eval_evalf": evaluate, "fdiff": fdiff, "__module__": __name__}
    return type(sympy.Function)(name, (sympy.Function,), methods | more)


def _where(condition: Expression) -> Expression:
    return sympy.Piecewise((1, condition), (0, True))


def _above(f: Expression, x: Expression, y: Expression) -> Expression:
    return _where(f > y if y.is_number else x > y)


def _below(f: Expression, x: Expression, y: Expression) -> Expression:
    return _where(f < y if y.is_number else x < y)


Sigmoid = _function("Sigmoid", lambda x: 1 / (1 + sympy.exp(-x)), lambda f, x: f * (1 - f), is_real=True)
Reciprocal = _function("Reciprocal", lambda x: 1 / x, lambda f, x: -(f**2))
Root = _function("Root", sympy.sqrt, lambda f, x: Reciprocal(f) / 2)
#: For a number y, the derivative with respect to x is 1 where the value differs from y, else 0.
Maximum = _function("Maximum", sympy.Max, _above, lambda f, x, y: 1 - _above(f, x, y))
Minimum = _function("Minimum", sympy.Min, _below, lambda f, x, y: 1 - _below(f, x, y))
#: The derivative at 0 is 0.
Magnitude = _function(
    "Magnitude", sympy.Abs, lambda f, x: sympy.Piecewise((1, x > 0), (-1, x < 0), (0, True))
)

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

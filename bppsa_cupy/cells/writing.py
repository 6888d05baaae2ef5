"""Text of a cell's functions: plain Python on lanes or numbers, translated to `struct Cell` from there.

First come the functions that texts know, as SymPy's or with derivatives with respect to their own values.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from typing import Any

import sympy
from sympy.core.evalf import prec_to_dps

from bppsa_cupy.raw_kernels.twins.simd import activations, functions, lanes

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


# ---- texts ----


def function_text(
    name: str,
    inputs: Mapping[str, Sequence[sympy.Symbol]],
    results: Sequence[Sequence[Expression]],
    definitions: Mapping[sympy.Symbol, Expression],
    like: str,
) -> str:
    """A function of twins.

    Parameters
    ----------
    name
        Its name.
    inputs
        The symbols of each argument's elements.
    results
        The elements of each result, as expressions of inputs and definitions.
    definitions
        The expressions of symbols that are no inputs.
    like
        An argument of the type of the function's numbers.
    """
    names = {s: f"{argument}[{place}]" for argument in inputs for place, s in enumerate(inputs[argument])}
    outputs = [sympy.sympify(value) for result in results for value in result]
    statements, outputs = _shared(outputs, {s: e for s, e in definitions.items() if s not in names})
    writer = _Writer(names, like)
    lines: list[str] = []

    def assign(expression: Expression) -> None:
        """Write the statements that an expression reads."""
        for symbol in sorted(expression.free_symbols, key=str):
            if symbol not in names:
                assign(statements[symbol])
                text = writer.text(statements[symbol])
                names[symbol] = f"t{len(lines)}" if statements[symbol].args else text
                lines.extend([f"{names[symbol]} = {text}"] if statements[symbol].args else [])

    for output in outputs:
        assign(output)
    texts = iter([writer.text(output) for output in outputs])
    tuples = [f"({''.join(next(texts) + ', ' for _ in result)})" for result in results]
    lines.append(f"return {tuples[0] if len(tuples) == 1 else ', '.join(tuples)}")
    constants = [f"{called} = number({like}, {value!r})" for value, called in writer.constants.items()]
    body = "\n    ".join([*constants, *lines])
    return ast.unparse(ast.parse(f"def {name}({', '.join(inputs)}):\n    {body}"))  # fewest brackets


def _shared(
    outputs: Sequence[Expression], definitions: Mapping[sympy.Symbol, Expression]
) -> tuple[dict[sympy.Symbol, Expression], list[Expression]]:
    """Statements by symbol, and the outputs, with common subexpressions computed once."""
    wanted: dict[sympy.Symbol, Expression] = {}

    def need(expression: Expression) -> None:
        for symbol in sorted(expression.free_symbols, key=str):
            if symbol in definitions and symbol not in wanted:
                need(definitions[symbol])
                wanted[symbol] = definitions[symbol]

    for output in outputs:
        need(output)
    symbols = (sympy.Symbol(f"c.{place:03}", real=True) for place in range(10**6))
    common, reduced = sympy.cse([*wanted.values(), *outputs], symbols)
    inlined: dict[sympy.Symbol, Expression] = {}
    statements: dict[sympy.Symbol, Expression] = {}
    for symbol, value in common:
        place = inlined if is_mask(value) or not isinstance(value, sympy.Expr) else statements
        place[symbol] = value.xreplace(inlined)
    reduced = [expression.xreplace(inlined) for expression in reduced]
    return statements | dict(zip(wanted, reduced, strict=False)), reduced[len(wanted) :]


class _Writer:
    """Writes expressions, with products fused into sums by `multiply_add`.

    Parameters
    ----------
    names : dict of Symbol to str
        The texts of symbols.
    constants : dict of float to str
        The names of numbers.
    """

    def __init__(self, names: Mapping[sympy.Symbol, str], like: str) -> None:
        self.names, self.like = names, like
        self.constants: dict[float, str] = {}

    def text(self, expression: Expression) -> str:
        if expression.is_Symbol:
            return self.names[expression]
        if expression.is_number:
            value = float(expression)
            return self.number(value) if value >= 0 else f"(-{self.number(-value)})"
        if isinstance(expression, sympy.Piecewise):
            return self.branches(expression.args)
        if isinstance(expression, Maximum | Minimum):
            x, y = map(self.text, expression.args)
            condition = f"{x} <= {y}" if isinstance(expression, Maximum) else f"{y} <= {x}"
            return f"select({condition}, {y}, {x})"
        if type(expression) in NAMES:
            return f"{NAMES[type(expression)]}({self.text(expression.args[0])})"
        if expression.is_Add:
            return self.total(expression)
        masks = [factor for factor in sympy.Mul.make_args(expression) if is_mask(factor)]
        if masks:
            rest = sympy.Mul(*(factor for factor in expression.args if factor is not masks[0]))
            return self.branches([(rest * value, condition) for value, condition in masks[0].args])
        sign, factors, divisors = self.parts(expression)
        return f"({sign}{' * '.join(factors) or self.number(1.0)}{''.join(f' / {d}' for d in divisors)})"

    def parts(self, expression: Expression) -> tuple[str, list[str], list[str]]:
        """The sign of a product, its factors, and what divides it."""
        sign, factors, divisors = "", [], []
        for part in sympy.Mul.make_args(expression):
            if part.is_number:
                if part < 0:
                    sign = "" if sign else "-"
                factors += [self.text(abs(part))] if abs(part) != 1 else []
            elif isinstance(part, Reciprocal):
                divisors.append(self.text(part.args[0]))
            else:
                base, exponent = part.as_base_exp() if part.is_Pow else (part, 1)
                factors += [self.text(base)] * int(exponent)
        return sign, factors, divisors

    def total(self, expression: Expression) -> str:
        """A sum: single terms first, those with a minus last, then products."""
        products, singles = [], []
        for term in expression.args:
            masked = any(map(is_mask, sympy.Mul.make_args(term)))
            sign, factors, divisors = ("", [self.text(term)], []) if masked else self.parts(term)
            last = factors.pop() if factors else self.number(1.0)
            if factors and not divisors:
                products.append((f"({sign}{' * '.join(factors)})", last))
            else:
                text = " * ".join([*factors, last])
                singles.append((sign, f"({text}{''.join(f' / {d}' for d in divisors)})"))
        total = "".join(f"{sign or '+'} {text} " for sign, text in sorted(singles)).removeprefix("+ ")
        if not singles:
            total = "{} * {}".format(*products.pop(0))
        for first, last in products:
            total = f"multiply_add({first}, {last}, {total})"
        return f"({total})"

    def branches(self, branches: Sequence[tuple[Expression, Expression]]) -> str:
        (value, condition), *rest = branches
        return self.chosen(condition, self.text(value), self.branches(rest)) if rest else self.text(value)

    def chosen(self, condition: Expression, chosen: str, other: str) -> str:
        """`chosen` under a condition; comparisons are <, <= and == only, which lanes have."""
        if condition in (sympy.true, sympy.false):
            return chosen if condition == sympy.true else other
        if isinstance(condition, sympy.Not):
            return self.chosen(condition.args[0], other, chosen)
        if isinstance(condition, sympy.And | sympy.Or):
            first, *others = sorted(condition.args, key=str)
            rest = self.chosen(condition.func(*others), chosen, other)
            pair = (rest, other) if isinstance(condition, sympy.And) else (chosen, rest)
            return self.chosen(first, *pair)
        left, right = map(self.text, condition.args)
        if isinstance(condition, sympy.Ne):
            return f"select({left} == {right}, {other}, {chosen})"
        if isinstance(condition, sympy.Gt | sympy.Ge):
            left, right = right, left
        strict = isinstance(condition, sympy.Gt | sympy.Lt)
        operator = "==" if isinstance(condition, sympy.Eq) else "<" if strict else "<="
        return f"select({left} {operator} {right}, {chosen}, {other})"

    def number(self, value: float) -> str:
        return self.constants.setdefault(value, f"c{len(self.constants)}")


@cache
def functions_of(text: str, kind: type[Any]) -> Any:
    """The `kind` of functions that a text of twins' functions makes, once; tracebacks show its lines."""
    from numba.extending import register_jitable

    file = f"<cell {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": "bppsa_cupy.raw_kernels.cells"}
    namespace |= {name: getattr(lanes, name) for name in ("multiply_add", "number", "select", "magnitude")}
    namespace |= {name: getattr(activations, name) for name in ("tanh", "sigmoid", "exponential")}
    namespace |= {name: getattr(functions, name) for name in ("logarithm", "sine", "cosine", "sqrt")}
    exec(compile(text, file, "exec"), namespace)
    compiled = {name: register_jitable(namespace[name]) for name in kind.__annotations__ if name in namespace}
    return kind(**compiled)

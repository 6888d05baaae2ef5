"""Text of a cell's functions: plain Python on lanes or numbers, translated to `struct Cell` from there."""

from __future__ import annotations

import ast
import hashlib
import linecache
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sympy

from bppsa_cupy.cells.symbolic import NAMES, Expression, Maximum, Minimum, Reciprocal, is_mask
from bppsa_cupy.raw_kernels.twins.simd import activations, functions, lanes


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

"""`struct Cell` in CUDA C++, translated from the functions of a cell's twins.

These hold assignments and one return of tuples, over subscripts, numbers, operators, `multiply_add`, `select`
and functions of one number.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

#: A twin's functions of one number in CUDA C++.
CUDA_NAMES = {
    "tanh": "tanh_of", "sigmoid": "sigmoid_of", "exponential": "exp_of", "expm1": "expm1_of",
    "logarithm": "log", "sine": "sin", "cosine": "cos", "sqrt": "sqrt", "bounded_root": "sqrt",
    "magnitude": "fabs",
}  # fmt: skip
OPERATORS = {
    ast.Mult: "*",
    ast.Div: "/",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Eq: "==",
}
#: How loosely an operator binds.
ATOM, PRODUCT, SUM, CONDITION = range(4)
WIDTH = 110


class Signature(NamedTuple):
    """A function of the struct: its name, arguments and results. Where a result is an argument too, it is
    overwritten."""

    name: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]


def struct_text(
    counts: Sequence[Mapping[str, int]], functions: Sequence[tuple[Callable[..., Any], Signature]]
) -> str:
    """The struct: a line of constants for each of `counts`, and the functions; where a constant has the name
    of one, `_of` follows it."""
    lines = ["struct Cell {"]
    for values in counts:
        lines.append(
            f"    static const int {', '.join(f'{name} = {value}' for name, value in values.items())};"
        )
    for function, signature in functions:
        arguments = [name for name in signature.arguments if name not in signature.results]
        items = [f"const real* {name}" for name in arguments] + [
            f"real* {name}" for name in signature.results
        ]
        name = signature.name + "_of" * any(signature.name in values for values in counts)
        head = f"    static __device__ __forceinline__ void {name}("
        body = [f"        {line}" for line in function_body(function, signature.results)]
        lines += ["", *_filled(head, items), "    {", *body, "    }"]
    return "\n".join([*lines, "};", ""])


def _filled(line: str, items: Sequence[str]) -> list[str]:
    """`line` and the items, broken after commas."""
    lines = [line]
    for place, item in enumerate(items):
        piece = item + (", " if place < len(items) - 1 else ")")
        if len(lines[-1]) + len(piece.rstrip()) > WIDTH:
            lines[-1] = lines[-1].rstrip()
            lines.append(" " * 8)
        lines[-1] += piece
    return lines


@cache
def _definitions(file: str) -> dict[str, ast.FunctionDef]:
    """The functions of a file, or of a text that `linecache` holds under that name."""
    tree = ast.parse("".join(linecache.getlines(file)))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def function_body(function: Callable[..., Any], results: Sequence[str]) -> list[str]:
    """The statements that fill the results of one function."""
    definition = _definitions(function.__code__.co_filename)[function.__name__]
    arguments = {argument.arg for argument in definition.args.args}
    translator, lines = _Translator(), []
    for statement in definition.body:
        if isinstance(statement, ast.Return):
            assert isinstance(statement.value, ast.Tuple)
            tuples = statement.value.elts if len(results) > 1 else [statement.value]
            for result, elements in zip(results, tuples, strict=True):
                assert isinstance(elements, ast.Tuple)
                texts = [translator.text(element)[0] for element in elements.elts]
                lines += (_overwriting if result in arguments else _storing)(result, texts)
            continue
        assert isinstance(statement, ast.Assign)
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Tuple):  # unpacks an argument
            read = [f"{ast.unparse(name)} = {ast.unparse(value)}[{i}]" for i, name in enumerate(target.elts)]
            lines.append(f"const real {', '.join(read)};")
        elif isinstance(value, ast.Call) and ast.unparse(value.func) == "number":
            translator.numbers[ast.unparse(target)] = _real(ast.literal_eval(value.args[1]))
        else:
            lines.append(f"const real {ast.unparse(target)} = {translator.text(value)[0]};")
    return lines


def _storing(result: str, texts: Sequence[str]) -> list[str]:
    return [f"{result}[{place}] = {text};" for place, text in enumerate(texts)]


def _overwriting(result: str, texts: Sequence[str]) -> list[str]:
    """Results that are made of what they overwrite; those that stay are left out."""
    changed = {place: text for place, text in enumerate(texts) if text != f"{result}[{place}]"}
    lines = [f"const real new_{place} = {text};" for place, text in changed.items()]
    return lines + [f"{result}[{place}] = new_{place};" for place in changed]


def _real(value: float) -> str:
    return f"real({int(value) if value.is_integer() and value < 1e9 else repr(value)})"


class _Translator:
    """Writes expressions; `numbers` are the texts of names that stand for numbers."""

    def __init__(self) -> None:
        self.numbers: dict[str, str] = {}

    def text(self, node: ast.expr) -> tuple[str, int]:
        """An expression, and how loosely its outermost operator binds."""
        if isinstance(node, ast.Name | ast.Subscript):
            name = ast.unparse(node)
            return self.numbers.get(name, name), ATOM
        if isinstance(node, ast.UnaryOp):
            return f"-{self.within(node.operand, PRODUCT)}", PRODUCT
        if isinstance(node, ast.BinOp):
            is_sum = isinstance(node.op, ast.Add | ast.Sub)
            left = self.within(node.left, SUM if is_sum else PRODUCT)
            right = self.within(node.right, PRODUCT if is_sum else ATOM)
            return f"{left} {OPERATORS[type(node.op)]} {right}", SUM if is_sum else PRODUCT
        if isinstance(node, ast.Compare):
            left, right = self.within(node.left, SUM), self.within(node.comparators[0], SUM)
            return f"{left} {OPERATORS[type(node.ops[0])]} {right}", CONDITION
        assert isinstance(node, ast.Call)
        name = ast.unparse(node.func)
        if name == "multiply_add":  # the compiler fuses products into sums
            first, second, added = node.args
            first, is_negative = _without_minus(first)
            product = f"{self.within(first, PRODUCT)} * {self.within(second, ATOM)}"
            return f"{self.within(added, SUM)} {'-' if is_negative else '+'} {product}", SUM
        if name == "select":
            condition, chosen, other = node.args
            texts = self.text(condition)[0], self.within(chosen, SUM), self.within(other, SUM)
            return f"{texts[0]} ? {texts[1]} : {texts[2]}", CONDITION
        return f"{CUDA_NAMES[name]}({self.text(node.args[0])[0]})", ATOM

    def within(self, node: ast.expr, binding: int) -> str:
        """An expression, in brackets where it binds more loosely than its place."""
        text, priority = self.text(node)
        return f"({text})" if priority > binding else text


def _without_minus(node: ast.expr) -> tuple[ast.expr, bool]:
    """A product without its sign, and whether that is a minus."""
    if isinstance(node, ast.UnaryOp):
        return node.operand, True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        left, is_negative = _without_minus(node.left)
        return ast.BinOp(left, node.op, node.right), is_negative
    return node, False

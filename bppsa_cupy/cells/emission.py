"""The texts of a cell's functions for twins, from which `struct Cell` is translated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import sympy

from bppsa_cupy.cells.program import is_mask
from bppsa_cupy.cells.symbolic import Expression
from bppsa_cupy.cells.texts import CellFunction, Parts
from bppsa_cupy.cells.writing import TwinWriter
from bppsa_cupy.raw_kernels.frames.form import SIGNATURES

WIDTH = 110


@dataclass(frozen=True)
class Emitted:
    """One function as texts write it.

    unpacked     names of the kept values that it reads, by place
    names        of all symbols
    assignments  of temporaries, in order
    results      by name
    """

    unpacked: Mapping[int, str]
    names: Mapping[sympy.Symbol, str]
    assignments: tuple[tuple[sympy.Symbol, Expression], ...]
    results: tuple[tuple[str, tuple[Expression, ...]], ...]


def emitted(part: CellFunction, values: Mapping[sympy.Symbol, str]) -> Emitted:
    """A part with a name for each symbol, its assignments split where their lines are too long."""
    names = {
        symbol: f"{argument}[{place}]"
        for argument, symbols in part.inputs.items()
        for place, symbol in enumerate(symbols)
    }
    numbered = count()
    splits = count()
    unpacked = {}
    if "kept" in part.inputs:
        for place in part.reads("kept"):
            symbol = part.inputs["kept"][place]
            unpacked[place] = names[symbol] = values.get(symbol, f"kept_{place}")
    assignments: list[tuple[sympy.Symbol, Expression]] = []

    def assign(symbol: sympy.Symbol, expression: Expression) -> None:
        fitted = fit(expression)
        if symbol in values:
            names[symbol] = values[symbol]
        else:
            names[symbol] = f"t{next(numbered)}"
        assignments.append((symbol, fitted))

    def fit(expression: Expression) -> Expression:
        while len(TwinWriter(names).write(expression).text) > WIDTH - 24:
            inner = [p for p in expression.args if p.args and not p.is_number and not is_mask(p)]
            if not inner or not isinstance(expression, sympy.Add | sympy.Mul):
                return expression
            largest = max(inner, key=lambda p: len(TwinWriter(names).write(p).text))
            symbol = sympy.Symbol(f"split.{next(splits)}", real=True)
            assign(symbol, largest)
            expression = expression.func(*(symbol if p is largest else p for p in expression.args))
        return expression

    for symbol, expression in part.program.assignments:
        assign(symbol, expression)
    results = tuple((name, tuple(map(fit, elements))) for name, elements in part.results())
    return Emitted(unpacked, names, tuple(assignments), results)


def twin_text(parts: Parts) -> str:
    """The imports and the functions of a cell's twins."""
    used: set[tuple[str, str]] = set()
    blocks = []
    for name, arguments, _ in SIGNATURES:
        function = emitted(getattr(parts, name), parts.names)
        unpacked: list[str] = []
        if function.unpacked:
            places = list(function.unpacked)
            whole = places == list(range(len(parts.derived.kept))) and len(places) > 1
            unpacked = (
                [", ".join(function.unpacked.values()) + " = kept"]
                if whole
                else [f"{value} = kept[{place}]" for place, value in function.unpacked.items()]
            )
        block, words = twin_function(name, arguments, function, _like(name, parts), unpacked)
        used |= words
        blocks.append(block)
    return with_imports(used, blocks)


def twin_function(
    name: str, arguments: Sequence[str], function: Emitted, like: str, unpacked: Sequence[str] = ()
) -> tuple[str, set[tuple[str, str]]]:
    """A function of twins, and what it uses of their modules.

    like      an argument of the type of its numbers
    unpacked  lines that come first
    """
    writer = TwinWriter(function.names)
    computed = [
        f"{function.names[symbol]} = {writer.write(expression).text}"
        for symbol, expression in function.assignments
    ]
    results = [[writer.write(element).text for element in elements] for _, elements in function.results]
    constants = [f"{called} = number({like}, {value!r})" for value, called in writer.constants.items()]
    if constants:
        writer.used.add(("lanes", "number"))
    lines = [f"    {line}" for line in (*constants, *unpacked, *computed, *_returned(results))]
    return "\n".join(["@register_jitable", f"def {name}({', '.join(arguments)}):", *lines]), writer.used


def with_imports(used: set[tuple[str, str]], blocks: Sequence[str]) -> str:
    """Functions of twins behind the imports of what they use."""
    modules: dict[str, list[str]] = {}
    for module, word in sorted(used):
        modules.setdefault(module, []).append(word)
    imports = [
        f"from bppsa_cupy.raw_kernels.twins.simd.{module} import {', '.join(words)}"
        for module, words in modules.items()
    ]
    return "\n".join([*imports, "", "", "\n\n\n".join(blocks), ""])


def _like(name: str, parts: Parts) -> str:
    """An argument of a function that has the type of its numbers."""
    if name == "coefficients":
        return "kept[0]" if parts.derived.kept else "after[0]"
    return {"backward": "g[0]", "entry": "w[0]"}.get(name, "x[0]")


def _returned(results: list[list[str]]) -> list[str]:
    """A return of one tuple, or of a tuple of tuples, as the formatter lays it out."""
    tuples = [_tuple(elements) for elements in results]
    line = "return " + ", ".join(tuples)
    if 4 + len(line) <= WIDTH:
        return [line]
    if len(results) == 1:
        return ["return (", *(f"    {element}," for element in results[0]), ")"]
    lines = ["return ("]
    for elements, text in zip(results, tuples, strict=True):
        if 9 + len(text) <= WIDTH:
            lines.append(f"    {text},")
        else:
            lines += ["    (", *(f"        {element}," for element in elements), "    ),"]
    return [*lines, ")"]


def _tuple(elements: list[str]) -> str:
    return f"({elements[0]},)" if len(elements) == 1 else f"({', '.join(elements)})"

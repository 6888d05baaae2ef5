"""Names of a cell's values in its texts."""

from __future__ import annotations

import keyword
import re

import sympy

from bppsa_cupy.cells.derivation import Derivation
from bppsa_cupy.cells.symbolic import NAMES
from bppsa_cupy.raw_kernels.cell_struct import CUDA_NAMES

#: Words that both texts use, or C++ has.
_RESERVED = {
    *("x", "u", "before", "p", "after", "kept", "g", "by_x", "by_u", "by_before", "by_p", "a", "w", "d"),
    *("forward", "backward", "coefficients", "enter", "entry", "carry", "coefficients_of", "FORM", "Cell"),
    *("b", "y", "by", "state", "terms", "output", "by_state", "by_inputs", "LinearForm", "LinearFunctions"),
    *("real", "size_type", "index_t", "number", "select", "multiply_add", "register_jitable"),
    *("zero", "one", "two", "half", "Functions", "CellForm", "int", "float", "double"),
    *("auto", "bool", "break", "case", "char", "const", "default", "delete", "do", "else", "enum", "extern"),
    *("for", "goto", "if", "inline", "long", "new", "operator", "private", "public", "register", "return"),
    *("short", "signed", "static", "struct", "switch", "template", "this", "throw", "try", "typedef"),
    *("union", "unsigned", "using", "virtual", "void", "volatile", "while", "catch", "class", "namespace"),
    *("and", "or", "not", "xor", "true", "false", "friend", "export", "explicit", "mutable", "typename"),
    *CUDA_NAMES,
    *CUDA_NAMES.values(),
}


def named_values(derived: Derivation) -> dict[sympy.Symbol, str]:
    """Names of what a step computes: the first function of a gate has the gate's; a new state is called
    after it; a gradient is by_ and its value's name. Others are numbered where they are written."""
    graph = derived.graph
    definition = graph.trace.definition
    taken = set(_RESERVED)
    names: dict[sympy.Symbol, str] = {}

    def name(symbol: sympy.Symbol, wish: str) -> None:
        while wish in taken or keyword.iskeyword(wish) or re.fullmatch(r"(t|c|kept_)\d+", wish):
            wish = f"{wish}_"
        taken.add(wish)
        names[symbol] = wish

    for gate, gate_name in enumerate(definition.gates):
        first = _first_function(derived, gate)
        if first is not None and first not in names and first not in graph.after:
            name(first, gate_name)
    for symbol, state in zip(graph.after, definition.states, strict=True):
        name(symbol, f"new_{state}")
    for symbol in derived.kept:
        if symbol not in names and not symbol.name.startswith("v."):
            name(symbol, symbol.name.replace(".", "_"))
    for symbol in derived.definitions:
        label, _, value = symbol.name.partition(".")
        of = sympy.Symbol(value, real=True)
        if label == "by" and of in names:
            name(symbol, f"by_{names[of].removeprefix('new_')}")
    return names


def _first_function(derived: Derivation, gate: int) -> sympy.Symbol | None:
    """The first function that reads a gate, and no later gate."""
    graph = derived.graph
    traced = graph.trace
    reach = dict(zip(traced.u, traced.definition.recurrent_gates, strict=True))
    reach |= {symbol: place for place, symbol in enumerate(traced.x)}
    for value, expression in graph.values.items():
        found = [reach[symbol] for symbol in expression.free_symbols if symbol in reach]
        if found:
            reach[value] = max(found)
            if reach[value] == gate and isinstance(expression, tuple(NAMES)):
                return value
    return None

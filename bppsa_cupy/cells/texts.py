"""A cell's two texts, from one derivation: `struct Cell` in CUDA C++, and the functions of its twins."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import sympy

from bppsa_cupy.cells.derivation import Derivation, Table
from bppsa_cupy.cells.program import Program, make_program
from bppsa_cupy.cells.symbolic import NAMES, Expression
from bppsa_cupy.raw_kernels.cell_struct import CUDA_NAMES


def _symbols(letter: str, count: int) -> tuple[sympy.Symbol, ...]:
    return tuple(sympy.Symbol(f"{letter}[{place}]", real=True) for place in range(count))


@dataclass(frozen=True)
class CellFunction:
    """One function of a cell.

    inputs   argument -> the symbols of its elements
    outputs  result -> its elements
    """

    program: Program
    inputs: Mapping[str, tuple[sympy.Symbol, ...]]
    outputs: Mapping[str, int]

    def results(self) -> Iterable[tuple[str, tuple[Expression, ...]]]:
        """Each result with its elements' expressions."""
        place = 0
        for name, count in self.outputs.items():
            yield name, self.program.outputs[place : place + count]
            place += count

    def reads(self, argument: str) -> list[int]:
        """The elements of an argument that are read."""
        read = self.program.symbols()
        return [place for place, symbol in enumerate(self.inputs[argument]) if symbol in read]


@dataclass(frozen=True)
class Parts:
    """The functions of a cell, and its numbers for `CellForm`."""

    derived: Derivation

    @cached_property
    def names(self) -> dict[sympy.Symbol, str]:
        return named_values(self.derived)

    def part(
        self, inputs: Mapping[str, tuple[sympy.Symbol, ...]], **outputs: Sequence[Expression]
    ) -> CellFunction:
        given = [symbol for symbols in inputs.values() for symbol in symbols]
        wanted = [expression for result in outputs.values() for expression in result]
        program = make_program(self.derived.definitions, wanted, given, self.derived.kept)
        return CellFunction(program, inputs, {name: len(result) for name, result in outputs.items()})

    @cached_property
    def forward(self) -> CellFunction:
        d, t = self.derived, self.derived.graph.trace
        inputs = {"x": t.x, "u": t.u, "before": t.before, "p": t.p}
        return self.part(inputs, after=d.graph.after, kept=d.kept)

    @cached_property
    def _way_back(self) -> dict[str, tuple[sympy.Symbol, ...]]:
        d, t = self.derived, self.derived.graph.trace
        return {"kept": d.kept, "after": d.graph.after, "before": t.before, "p": t.p}

    @cached_property
    def backward(self) -> CellFunction:
        d = self.derived
        results = {"by_x": d.by_x, "by_u": d.by_u, "by_before": d.by_before, "by_p": d.by_p}
        return self.part({"g": d.gradients, **self._way_back}, **results)

    @cached_property
    def varying(self) -> tuple[Expression, ...]:
        """The coefficients of a step's Jacobian that are no fixed numbers, each once."""
        tables = (self.derived.among, self.derived.gates, self.derived.direct)
        found = dict.fromkeys(value for table in tables for value in table.values() if not value.is_number)
        return tuple(found)

    def coefficient(self, table: Table, row: int, column: int) -> Expression:
        """An element of C, U or D: a number, or a symbol a[k]."""
        value = table.get((row, column), sympy.Integer(0))
        return value if value.is_number else _symbols("a", len(self.varying))[self.varying.index(value)]

    @cached_property
    def coefficients(self) -> CellFunction:
        return self.part(self._way_back, a=self.varying)

    @property
    def states(self) -> int:
        return len(self.derived.graph.after)

    def only_gate(self, state: int) -> int | None:
        """Which recurrent gate a new state reads, where it reads but one and no former state directly."""
        gates = [gate for row, gate in self.derived.gates if row == state]
        direct = [row for row, _ in self.derived.direct if row == state]
        return gates[0] if len(gates) == 1 and not direct else None

    @cached_property
    def entering(self) -> list[tuple[int, int, Expression]]:
        """Steps (to, from, factor) of `enter`, in order: x[to] += factor x[from], or x[to] *= factor."""
        steps: list[tuple[int, int, Expression]] = []
        waiting = list(range(self.states))
        while waiting:
            read = {column for row, column in self.derived.among if row in waiting}
            state = next(state for state in waiting if state not in read)
            waiting.remove(state)
            for row, other in sorted(self.derived.among):
                if row == state:
                    steps.append((other, state, self.coefficient(self.derived.among, state, other)))
            gate = self.only_gate(state)
            if gate is not None and self.coefficient(self.derived.gates, state, gate) != 1:
                steps.append((state, state, self.coefficient(self.derived.gates, state, gate)))
        return steps

    @cached_property
    def enter(self) -> CellFunction:
        inputs = {"a": _symbols("a", len(self.varying)), "x": _symbols("x", self.states)}
        values: list[Expression] = list(inputs["x"])
        for to, source, factor in self.entering:
            values[to] = factor * values[to] if to == source else values[to] + factor * values[source]
        return self.part(inputs, x=values)

    @cached_property
    def entry(self) -> CellFunction:
        gates = len(self.derived.graph.trace.u)
        inputs = {"a": _symbols("a", len(self.varying)), "w": _symbols("w", gates)}
        rows: list[Expression] = []
        for state in range(self.states if gates else 0):
            only = self.only_gate(state)
            terms = (
                self.coefficient(self.derived.gates, state, gate) * inputs["w"][gate] for gate in range(gates)
            )
            rows.append(sympy.Add(*terms) if only is None else inputs["w"][only])
        return self.part(inputs, p=rows)

    @cached_property
    def carry(self) -> CellFunction:
        inputs = {"a": _symbols("a", len(self.varying)), "x": _symbols("x", self.states)}
        columns = [
            sympy.Add(
                *(
                    self.coefficient(self.derived.direct, state, former) * inputs["x"][state]
                    for state in range(self.states)
                )
            )
            for former in range(self.states)
        ]
        return self.part(inputs, d=columns)

    @property
    def read_after(self) -> tuple[int, ...]:
        """States after the step that the way back reads."""
        return tuple(sorted({*self.backward.reads("after"), *self.coefficients.reads("after")}))

    @property
    def read_before(self) -> tuple[int, ...]:
        """States before the step that the way back reads."""
        return tuple(sorted({*self.backward.reads("before"), *self.coefficients.reads("before")}))

    def blocks(self) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
        """Blocks (former state, new state) of the Jacobian through W_hh, and of what is read directly."""
        dense = {(0, state) for state, _ in self.derived.gates}
        diagonal = {(former, state) for state, former in self.derived.direct}
        while True:
            more_dense = {(j, row) for row, other in self.derived.among for j, i in dense if i == other}
            more = {(j, row) for row, other in self.derived.among for j, i in diagonal if i == other}
            if more_dense <= dense and more <= diagonal:
                return tuple(sorted(dense)), tuple(sorted(diagonal))
            dense |= more_dense
            diagonal |= more


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

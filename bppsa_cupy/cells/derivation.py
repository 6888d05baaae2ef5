"""What the frames of recurrent kernels need of a cell, derived from its step.

The way back is reverse accumulation over the step's graph, whose derivatives are expressed by the values of
functions: s (1 - s) for a sigmoid s. The Jacobian of a step by the former states is, for the new states n
and the rows W_g of W_hh,

    J = (I - C)^-1 (D + the sum over gates of diag(U_g) W_g)

where C holds what new states read of one another, D what they read of former ones directly, and U_g what
they read of gate g's recurrent sum: all diagonal, so one number a unit each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import sympy
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from bppsa_cupy.cells.graph import Graph, operands
from bppsa_cupy.cells.symbolic import Expression

Table = dict[tuple[int, int], Expression]


@dataclass(frozen=True)
class Derivation:
    """A cell's quantities as expressions of symbols, and where the symbols come from.

    definitions  symbol -> its expression in others, of the values of a step and of gradients by them
    gradients    the symbols of the gradients by the new states
    kept         symbols that the forward pass keeps; `after` those of the new states
    separate     gates whose recurrent sum has a gradient of its own
    by_x, by_u, by_before, by_p  gradients: by every x; the separate gates' u; former states, but for what
                 goes through W_hh; unit parameters
    among        C: (new state, new state that it reads) -> coefficient
    gates        U: (new state, which of the recurrent gates) -> coefficient
    direct       D: (new state, former state) -> coefficient
    """

    graph: Graph
    definitions: dict[sympy.Symbol, Expression]
    gradients: tuple[sympy.Symbol, ...]
    kept: tuple[sympy.Symbol, ...]
    separate: tuple[int, ...]
    by_x: tuple[Expression, ...]
    by_u: tuple[Expression, ...]
    by_before: tuple[Expression, ...]
    by_p: tuple[Expression, ...]
    among: Table
    gates: Table
    direct: Table


def derive(graph: Graph) -> Derivation:
    """Gradients, coefficients and what is kept for them, of one cell."""
    traced = graph.trace
    definitions = dict(graph.values)
    names = traced.definition.states
    gradients = tuple(sympy.Symbol(f"g.{name}", real=True) for name in names)
    by = _accumulated(graph, "", dict(zip(graph.after, gradients, strict=True)), (), definitions)
    recurrent = traced.definition.recurrent_gates
    separate = tuple(gate for gate in recurrent if gate not in graph.sums)
    among: Table = {}
    gates: Table = {}
    direct: Table = {}
    for state, symbol in enumerate(graph.after):
        others = [other for other in graph.after if other != symbol]
        coefficients = _accumulated(graph, names[state], {symbol: sympy.Integer(1)}, others, definitions)
        for table, symbols in ((among, graph.after), (gates, traced.u), (direct, traced.before)):
            for place, other in enumerate(symbols):
                if other != symbol and coefficients.get(other, 0) != 0:
                    table[state, place] = coefficients[other]

    def found(symbols: Iterable[sympy.Symbol]) -> tuple[Expression, ...]:
        return tuple(by.get(symbol, sympy.Integer(0)) for symbol in symbols)

    return Derivation(
        graph,
        definitions,
        gradients,
        _kept(graph),
        separate,
        found(traced.x),
        found(traced.u[recurrent.index(gate)] for gate in separate),
        found(traced.before),
        found(traced.p),
        among,
        gates,
        direct,
    )


def _accumulated(
    graph: Graph,
    label: str,
    seeds: dict[sympy.Symbol, Expression],
    closed: Iterable[sympy.Symbol],
    definitions: dict[sympy.Symbol, Expression],
) -> dict[sympy.Symbol, Expression]:
    """Gradients by all values and leaves from those by the new states, `seeds`; nothing goes beyond `closed`.

    What is a sum or a product gets a symbol in `definitions`, its name made of `label`.
    """
    terms: dict[sympy.Symbol, list[Expression]] = {symbol: [seed] for symbol, seed in seeds.items()}
    result: dict[sympy.Symbol, Expression] = {}
    partials: dict[sympy.Symbol, list[tuple[sympy.Symbol, Expression]]] = {}
    for (value, operand), partial in graph.partials.items():
        partials.setdefault(value, []).append((operand, partial))
    for value in reversed(graph.values):
        if value not in terms:
            continue
        total = sympy.Add(*terms[value])
        if total.args:
            symbol = sympy.Symbol(f"by{label}.{value}", real=True)
            definitions[symbol] = total
            total = symbol
        result[value] = total
        if value not in closed:
            for operand, partial in partials.get(value, ()):
                terms.setdefault(operand, []).append(total * partial)
    leaves = {symbol: sympy.Add(*parts) for symbol, parts in terms.items() if symbol not in graph.values}
    return result | leaves


def _kept(graph: Graph) -> tuple[sympy.Symbol, ...]:
    """What the forward pass keeps: of all that a step's derivatives could be formed from, beside states and
    parameters, the fewest numbers, and of these what leaves least to be formed again."""
    traced = graph.trace
    varying = {*traced.x, *traced.u}
    reach: dict[sympy.Symbol, int] = {}
    for kind, gates in ((traced.x, range(len(traced.x))), (traced.u, traced.definition.recurrent_gates)):
        reach |= dict(zip(kind, gates, strict=True))
    places: dict[sympy.Symbol, tuple[sympy.Symbol, ...]] = {symbol: () for symbol in (*traced.x, *traced.u)}
    for value, expression in graph.values.items():
        froms = tuple(symbol for symbol in operands(expression) if symbol in reach)
        if froms:
            reach[value] = max(reach[symbol] for symbol in froms)
            places[value] = froms
    sinks = {partial for partial in graph.partials.values() if partial in reach}
    cut = nearest_cut(places, varying, sinks, set(graph.after))
    order = {symbol: place for place, symbol in enumerate(graph.values)}
    return tuple(sorted(cut, key=lambda symbol: (reach[symbol], symbol in varying, order.get(symbol, 0))))


def nearest_cut(
    operands: Mapping[sympy.Symbol, tuple[sympy.Symbol, ...]],
    sources: set[sympy.Symbol],
    sinks: set[sympy.Symbol],
    free: set[sympy.Symbol],
) -> set[sympy.Symbol]:
    """The fewest nodes, beside any of `free`, without which no path leads from `sources` to `sinks`.

    Of all such sets it is the one nearest to the sinks. Sources and sinks may be taken themselves.

    operands  node -> the nodes with an edge to it

    A node is an edge from its entry to its exit, of capacity 1, or 0 where it is free. After a maximum flow
    the places that can still reach a sink are after the cut.
    """
    nodes = dict.fromkeys(node for item in operands.items() for node in (item[0], *item[1]))
    entry = {node: 2 * number for number, node in enumerate(nodes)}
    start, end, unbounded = 2 * len(nodes), 2 * len(nodes) + 1, len(nodes)
    edges = [(entry[node], entry[node] + 1, 1) for node in nodes if node not in free]
    edges += [(entry[a] + 1, entry[b], unbounded) for b, froms in operands.items() for a in froms]
    edges += [(start, entry[node], unbounded) for node in nodes if node in sources]
    edges += [(entry[node] + 1, end, unbounded) for node in nodes if node in sinks]
    rows, columns, capacities = np.array(edges, np.int32).T
    capacity = csr_array((capacities, (rows, columns)), (end + 1, end + 1))
    residual = csr_array(capacity - maximum_flow(capacity, start, end).flow)
    residual.eliminate_zeros()
    after = set(breadth_first_order(csr_array(residual.T), end, return_predecessors=False).tolist())
    return {
        node for node in nodes if entry[node] + 1 in after and entry[node] not in after and node not in free
    }

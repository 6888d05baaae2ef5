"""Linear recurrent layers in the differentiable operations of an array library, around its linear scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from bppsa_cupy.layers.diagonal_recurrent import DiagonalRecurrent
from bppsa_cupy.layers.gated_recurrent import GatedRecurrent
from bppsa_cupy.layers.linear_recurrent import Direction, LinearRecurrent
from bppsa_cupy.layers.recurrent import Recurrent


class Library(NamedTuple):
    """What a pass takes of an array library, PyTorch's or JAX's.

    module     with exp, sin, cos, expm1, where
    scan       (a, b, h0, reverse, lengths) -> h, its `linear_scan`
    concatenate, stack  (arrays, axis)
    zeros      (array, shape) of the array's dtype, where it is
    steps      (array, T): 0 to T - 1, where the array is
    functions  the module that has those of cells, by the names that twins have them by
    """

    module: Any
    scan: Callable[..., Any]
    concatenate: Callable[..., Any]
    stack: Callable[..., Any]
    zeros: Callable[..., Any]
    steps: Callable[..., Any]
    functions: ModuleType


class CellOn(NamedTuple):
    """A linear cell's functions on a library's arrays; None where the state is put out itself."""

    terms: Callable[..., Any]
    output: Callable[..., Any] | None


def cell_on(layer: Recurrent, library: Library) -> CellOn | None:
    """Those of a layer's cell: the text of its twins, which is plain Python, in the library's names."""
    if not isinstance(layer, GatedRecurrent):
        return None
    own, names = layer.cell.functions, vars(library.functions)

    def on(function: Any) -> Any:
        return None if function is None else FunctionType(function.__code__, names, function.__name__)

    return CellOn(on(own.terms), on(own.output))


def forward(
    layer: LinearRecurrent,
    library: Library,
    cell: CellOn | None,
    parameters: Mapping[str, Any],
    x: Any,
    lengths: Any,
    state: Any,
) -> tuple[Any, Any]:
    """The output of x (B, T, F) and the last states, (num_layers D, B, H), complex where the layer's are.

    cell     as `cell_on` makes it
    lengths  (B,) where samples end, or None
    state    before the first step, or None for zeros
    """
    steps = x.shape[1]
    outputs: list[Any] = []
    live = None if lengths is None else library.steps(x, steps)[None, :, None] < lengths[:, None, None]
    given, after = _cleared(library, x, live), []
    for number in range(layer.num_layers):
        outputs = []
        for walk in layer.walks(number):
            own = {
                name.removesuffix(f"_{walk.name}"): array
                for name, array in parameters.items()
                if name.endswith(f"_{walk.name}")
            }
            first = None if state is None else state[walk.number]
            place = library, own, walk, given, lengths, first
            if cell is None:
                assert isinstance(layer, DiagonalRecurrent)
                y, h = _diagonal(layer, *place)
            else:
                y, h = _gated(layer, cell, *place)
            outputs.append(_cleared(library, y, live))
            after.append(_last(library, h, lengths, walk.reverse))
        given = outputs[0] if len(outputs) == 1 else library.concatenate(outputs, 2)
    if layer.outputs == "last":
        given = ends(library, outputs, lengths)
    return given, library.stack(after, 0)


def ends(library: Library, outputs: Sequence[Any], lengths: Any) -> Any:
    """(B, D O): of each direction's outputs (B, T, O) the one that it ends with."""
    last = [_last(library, y, lengths, bool(number)) for number, y in enumerate(outputs)]
    return library.concatenate(last, 1)


def _cleared(library: Library, rows: Any, live: Any) -> Any:
    return rows if live is None else library.module.where(live, rows, library.zeros(rows, rows.shape))


def _last(library: Library, rows: Any, lengths: Any, reverse: bool) -> Any:
    if reverse or lengths is None:
        return rows[:, 0 if reverse else -1]
    return rows[library.steps(rows, len(rows)), lengths - 1]


def _gated(
    layer: Any, cell: CellOn, library: Library, own: Any, walk: Direction, x: Any, lengths: Any, first: Any
) -> tuple[Any, Any]:
    """What a direction of a layer of gates puts out, and its states."""
    inputs, H, seen = x.shape[2], layer.hidden_size, x
    if layer.window == 2:
        none = library.zeros(x, (x.shape[0], 1, inputs))
        parts = [x[:, 1:], none] if walk.reverse else [none, x[:, :-1]]
        seen = library.concatenate([library.concatenate(parts, 1), x], 2)
    gates = layer.formula_gates(seen, own["weight_ih"])
    if layer.skips(inputs):
        gates = [*gates, x]
    if layer.bias:
        for place, gate in enumerate(layer.biased):
            gates[gate] = gates[gate] + own["bias_ih"][place * H : (place + 1) * H]
    unit = layer.unit_values(library.module, own)
    (factor,), (term,) = cell.terms(gates, unit)
    h = library.scan(factor, term, first, walk.reverse, lengths)
    return (h if cell.output is None else cell.output(gates, (h,), unit)[0]), h


def _diagonal(
    layer: DiagonalRecurrent, library: Library, own: Any, walk: Direction, x: Any, lengths: Any, first: Any
) -> tuple[Any, Any]:
    """What a direction of a state space puts out, and its states."""
    made = layer.discretised(library.module, own)
    matrix = made.gain[:, None] * (own["B_re"] + 1j * own["B_im"])
    term = x @ matrix.real.T + 1j * (x @ matrix.imag.T)
    h = library.scan(made.factor, term, first, walk.reverse, lengths)
    skip = own["D"]
    y = layer.scale * (h.real @ own["C_re"].T - h.imag @ own["C_im"].T)
    return y + (x * skip if skip.ndim == 1 else x @ skip.T), h

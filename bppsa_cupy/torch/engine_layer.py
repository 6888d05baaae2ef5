"""The engine's layer of a module, by a text that a compiled graph can hold."""

from __future__ import annotations

from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

from bppsa_cupy.cells import Cell
from bppsa_cupy.functional.ahead import layer_named
from bppsa_cupy.functional.pool import Pool, pool_of
from bppsa_cupy.layers import CellLayer, MatrixRecurrent
from bppsa_cupy.layers.cell_layers import ProjectedCellLayer

#: A projected input at which a sigmoid is exactly 0.
CLOSED = -1e4

#: Cells that modules were made of, by digest: a module's text names its cell by it.
_cells: dict[str, Cell] = {}


def mode_of(cell: Cell, forward_method: str = "auto") -> str:
    """The mode of a module of this cell, "cell:DIGEST:METHOD", by which the cell is found again."""
    _cells[cell.digest] = cell
    return f"cell:{cell.digest}:{forward_method}"


def projected_mode_of(cell: Cell) -> str:
    """The mode of a layer of this cell whose input is the projected input."""
    _cells[cell.digest] = cell
    return f"projected:{cell.digest}"


@cache
def resetting_mode_of(mode: str) -> tuple[str, list[float]]:
    """The mode of a layer like those of `mode` that takes the projected input, and the inputs of the gates
    that make every new state 0."""
    if mode == "LSTM":  # c' = f c + i g, h' = o tanh(c')
        return projected_mode_of(Cell.built_in("lstm")), [CLOSED, CLOSED, 0.0, 0.0]
    if mode == "GRU":  # h' = (1 - z) tanh(x_n + r u_n) + z h
        return projected_mode_of(Cell.built_in("gru")), [CLOSED, CLOSED, 0.0]
    cell = _cells[mode.split(":")[1]] if mode.startswith("cell:") else Cell.built_in(mode.lower())
    gates = *cell.gates, "keeps"
    mode = projected_mode_of(
        Cell(
            f"{cell.name}_with_resets", gates=gates, states=cell.states, parameters=cell.parameters,
            recurrent=cell.recurrent, step=partial(_kept_step, cell.definition.step),
        )
    )  # fmt: skip
    return mode, [0.0] * len(gates)


def _kept_step(step: Any, x: Any, u: Any, s: Any, p: Any) -> Any:
    """A step whose new states are multiplied by one more gate."""
    after = step(x, u, s, p)
    if isinstance(after, dict):
        return {name: x.keeps * value for name, value in after.items()}
    return [x.keeps * value for value in after]


#: What a module's layer is made of: mode, input_size, hidden_size, num_layers, bias, batch_first,
#: bidirectional. The mode is torch.nn's ("RNN_TANH", "GRU", …), or `mode_of` or `projected_mode_of` a cell.
#: A graph holds them as a text, joined by "|".
Arguments = tuple[str, int, int, int, bool, bool, bool]


class EngineLayer(NamedTuple):
    """What modules of equal arguments share: the engine's layer, its parameters' names, and the memory of its
    passes."""

    layer: MatrixRecurrent
    names: tuple[str, ...]
    pool: Pool


@lru_cache(maxsize=256)
def engine_layer_of(
    mode: str,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    bias: bool,
    batch_first: bool,
    bidirectional: bool,
) -> EngineLayer:
    """That of `Arguments`."""
    sizes = input_size, hidden_size, num_layers
    options: dict[str, Any] = {"bias": bias, "batch_first": batch_first, "bidirectional": bidirectional}
    layer: MatrixRecurrent
    if mode.startswith("cell:"):
        _, digest, method = mode.split(":")
        layer = CellLayer(_cells[digest], *sizes, forward_method=method, **options)
    elif mode.startswith("projected:"):
        layer = ProjectedCellLayer(_cells[mode.partition(":")[2]], hidden_size, **options)
    else:
        layer = layer_named(mode, *sizes, **options)
    return EngineLayer(layer, tuple(layer.parameter_shapes()), pool_of(layer))


def engine_layer_named(text: str) -> EngineLayer:
    """That of arguments as a text."""
    mode, *arguments = text.split("|")
    sizes, flags = map(int, arguments[:3]), (flag in ("True", "1") for flag in arguments[3:])
    return engine_layer_of(mode, *sizes, *flags)

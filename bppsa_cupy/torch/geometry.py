"""The engine's layer of a module, by a text that a compiled graph can hold."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from bppsa_cupy.cells import Cell
from bppsa_cupy.layers import GRU, LSTM, RNN, CellLayer, Recurrent

#: Cells that modules were made of, by digest: a module's text names its cell by it.
_cells: dict[str, Cell] = {}


def mode_of(cell: Cell) -> str:
    """What the text of a module of this cell begins with."""
    _cells[cell.digest] = cell
    return f"cell:{cell.digest}"


@lru_cache(maxsize=256)
def layer_of(text: str) -> tuple[Recurrent, tuple[str, ...]]:
    """The layer, and its parameters' names, of MODE|input_size|hidden_size|num_layers|bias|batch_first|
    bidirectional; MODE is torch.nn's ("RNN_TANH", "GRU", …) or `mode_of` a cell.

    Modules of equal texts share one, and so the memory of their passes.
    """
    mode, *numbers = text.split("|")
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "bidirectional")
    options: dict[str, Any] = {
        name: int(number) if number.isdigit() else number == "True"
        for name, number in zip(names, numbers, strict=True)
    }
    layer: Recurrent
    if mode.startswith("cell:"):
        layer = CellLayer(_cells[mode.removeprefix("cell:")], **options)
    elif mode.startswith("RNN_"):
        layer = RNN(nonlinearity=mode.removeprefix("RNN_").lower(), **options)
    else:
        layer = {"GRU": GRU, "LSTM": LSTM}[mode](**options)
    return layer, tuple(layer.parameter_shapes())

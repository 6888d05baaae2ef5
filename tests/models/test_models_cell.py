"""The model `cell`: built-in cells and cells of one's own, from Python and on the command lines."""

from __future__ import annotations

from pathlib import Path

import pytest

import bppsa_cupy as bp
from bppsa_cupy.models import build_model
from bppsa_cupy.models.sequences import CELLS

LAYERS = {
    "rnn": bp.RNN, "rnn_tanh": bp.RNN, "rnn_relu": bp.RNN, "gru": bp.GRU, "lstm": bp.LSTM,
}  # fmt: skip

#: A factory of a cell.
FILE = """
import sympy
import bppsa_cupy as bp

def leaky():
    return bp.Cell(
        "leaky", gates=["h"], states=["h"], step=lambda x, u, s, p: 0.9 * s.h + 0.1 * sympy.tanh(x.h + u.h)
    )
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a file of cells."""
    monkeypatch.chdir(tmp_path)
    Path("cells.py").write_text(FILE, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", CELLS)
def test_a_built_in_cell_is_its_layer(name: str) -> None:
    net = build_model("cell", (7, 3), classes=4, cell=name, hidden_size=5, outputs="all", device="host")
    layer = net.layers[0]
    assert type(layer) is LAYERS[name] and (layer.input_size, layer.hidden_size) == (3, 5)
    assert getattr(layer, "nonlinearity", None) == {"rnn_relu": "relu"}.get(
        name, "tanh" if LAYERS[name] is bp.RNN else None
    )
    assert net.output_shape == (7, 4)


def test_a_cell_of_ones_own(folder: Path) -> None:
    by_file = build_model("cell", cell="cells.py:leaky", device="host")
    assert (by_file.input_shape, by_file.output_shape) == ((1000, 1), (10,))
    definition = by_file.layers[0].definition
    assert build_model("cell", cell=definition, device="host").describe() == by_file.describe()
    assert definition.name == "leaky"

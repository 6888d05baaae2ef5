"""The model `cell`: built-in cells and cells of one's own, from Python and on the command lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import command, error_line

import bppsa_cupy as bp
from bppsa_cupy.models import build_model
from bppsa_cupy.models.recurrent import CELLS

LAYERS = {
    "rnn": bp.RNN, "rnn_tanh": bp.RNN, "rnn_relu": bp.RNN, "gru": bp.GRU, "lstm": bp.LSTM, "ctrnn": bp.CTRNN,
    "mgu": bp.MGU, "ugrnn": bp.UGRNN, "peephole_lstm": bp.PeepholeLSTM,
}  # fmt: skip

#: Factories of cells, right and wrong.
FILE = """
import sympy
import bppsa_cupy as bp

def leaky():
    return bp.Cell(
        "leaky", gates=["h"], states=["h"], step=lambda x, u, s, p: 0.9 * s.h + 0.1 * sympy.tanh(x.h + u.h)
    )

def number():
    return 3

def unknown():
    return bp.Cell("leaky", gates=["h"], states=["h"], step=lambda x, u, s, p: x.z)

def failing():
    return 1 / 0

def asking(size):
    return size

made = leaky()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a file of cells, and one of 24 bitstreams."""
    monkeypatch.chdir(tmp_path)
    Path("cells.py").write_text(FILE, encoding="utf-8")
    assert command("bppsa-data")("bitstream --length 9 --samples 24 --test-samples 8 -o bits.h5".split()) == 0
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


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_the_models_of_the_paper_are_models_of_their_cells(name: str) -> None:
    options = {"hidden_size": 6, "num_layers": 2, "bidirectional": True, "seed": 3, "device": "host"}
    for shape in (None, (11, 2)):
        one, other = build_model(name, shape, **options), build_model("cell", shape, cell=name, **options)
        assert one.describe() == other.describe()
        for key, values in one.state_dict().items():
            np.testing.assert_array_equal(values, other.state_dict()[key])


def test_a_cell_of_ones_own(folder: Path) -> None:
    by_file = build_model("cell", cell="cells.py:leaky", device="host")
    assert (by_file.input_shape, by_file.output_shape) == ((1000, 1), (10,))
    given = by_file.layers[0].definition
    assert build_model("cell", cell=given, device="host").describe() == by_file.describe()
    assert given.name == "leaky"


def test_what_is_no_cell_is_refused() -> None:
    with pytest.raises(
        bp.CellError, match=r"the model 'cell' got cell of int: it takes a name or a bp\.Cell"
    ):
        build_model("cell", cell=3, device="host")
    with pytest.raises(bp.ShapeError, match=r"mgu got input \(3, 8, 8\): it takes sequences \(T, F\)"):
        build_model("cell", (3, 8, 8), cell="mgu", device="host")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("cell", "the model 'cell' got no cell: name it by cell, on command lines --cell, as one of rnn, "),
        ("cell --cell tnn", "cell 'tnn' is none of rnn, rnn_tanh, rnn_relu, gru, lstm, ctrnn, mgu, ugrnn"),
        ("cell --cell none.py:leaky", "cell file 'none.py' does not exist"),
        (
            "cell --cell no_such_module:leaky",
            "cell 'no_such_module:leaky': module 'no_such_module' cannot be",
        ),
        ("cell --cell cells.py:none", "cell 'cells.py:none': cells.py has no function 'none'"),
        (
            "cell --cell cells.py:made",
            "made of cells.py is of Cell, it takes a function that returns the cell",
        ),
        ("cell --cell cells.py:number", "cell 'cells.py:number' made a int: a factory returns a bp.Cell"),
        ("cell --cell cells.py:unknown", "cell 'leaky': its step reads x.z, but its gates are h"),
        (
            "cell --cell cells.py:failing",
            "cell 'cells.py:failing' fails: ZeroDivisionError: division by zero",
        ),
        (
            "cell --cell cells.py:asking",
            "cell 'cells.py:asking' fails: TypeError: asking() missing 1 required",
        ),
        ("gru --cell mgu", "--cell is of the model cell, and 'gru' takes no cell: leave it out"),
        ("lenet5 --cell mgu", "--cell is of the model cell, and 'lenet5' takes no cell: leave it out"),
    ],
)
def test_errors_of_the_command_are_one_line(folder: Path, capsys, model: str, message: str) -> None:
    words = [*model.split(), "--data", "bits.h5", "--device", "host"]
    assert command("bppsa-train")(words) == 1
    assert message in error_line(capsys)


def test_every_command_that_takes_a_model_takes_a_cell(folder: Path, capsys) -> None:
    own = "cell --cell cells.py:leaky --input-shape 9,1 --device host".split()
    assert command("bppsa-plan")(["build", *own, "-o", "p.h5"]) == 0
    assert command("bppsa-plan")(["verify", "p.h5", "--model", *own]) == 0
    assert command("bppsa-plan")(["verify", "p.h5", "--model", "rnn", *own[3:]]) == 1
    assert "layer 0: type CellLayer in the plan, RNN in the network" in error_line(capsys)
    words = "dump cell --cell rnn --data bits.h5 --batch-size 2 --device host -o j.h5".split()
    assert command("bppsa-jacobians")(words) == 0
    assert "j.h5: 10 Jacobians" in capsys.readouterr().out


def test_a_checkpoint_knows_its_cell(folder: Path, capsys) -> None:
    def train(*words: str) -> int:
        return command("bppsa-train")([*words, "--data", "bits.h5", "--batch-size", "8", "--device", "host"])

    assert train(*"cell --cell rnn --iterations 2 --checkpoint c.h5".split()) == 0
    assert train(*"rnn --epochs 2 --resume c.h5".split()) == 0
    capsys.readouterr()
    assert train(*"cell --cell cells.py:leaky --epochs 2 --resume c.h5".split()) == 1
    assert "layer 0: type RNN in the checkpoint, CellLayer in the network" in error_line(capsys)

"""Models of sequences, and functions of your own by file or module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from bppsa_cupy.arguments import as_instance, as_path
from bppsa_cupy.cells import Cell
from bppsa_cupy.errors import BppsaError, CellError, ShapeError
from bppsa_cupy.layers import (
    GRU,
    LSTM,
    RNN,
    CellLayer,
    Linear,
    Recurrent,
)
from bppsa_cupy.network import Sequential


def load_factory(kind: str, spec: str, known: Iterable[str]) -> Callable[..., Any]:
    """Import the function named by `spec`: "path/to/file.py:factory" or "module:factory".

    `kind` and the `known` built-in names are for messages. Raises BppsaError.
    """
    takes = f"the name of a {kind}, path/to/file.py:factory or module:factory"
    module, colon, name = as_instance(f"a {kind}", "its name", spec, str, takes, error=BppsaError).rpartition(
        ":"
    )
    if not colon:
        raise BppsaError(
            f"{kind} {spec!r} is unknown: pass one of {', '.join(known)}, path/to/file.py:factory or "
            "module:factory"
        )
    try:
        loaded = _load_file(kind, module) if module.endswith(".py") else importlib.import_module(module)
    except BppsaError:
        raise
    except Exception as error:
        raise BppsaError(
            f"{kind} {spec!r} cannot be loaded, because importing {module} raises {type(error).__name__} "
            f"({error}): correct the module or its name"
        ) from error
    factory = getattr(loaded, name, None)
    if factory is None:
        raise BppsaError(
            f"{kind} {spec!r} cannot be loaded, because {module} has no function {name!r}: pass the name of "
            "a function in this module"
        )
    if not callable(factory):
        raise BppsaError(
            f"{kind} {spec!r} cannot be loaded, because {name} in {module} is a {type(factory).__name__}: "
            f"pass a function that returns the {kind}"
        )
    return factory


def call_factory(kind: str, spec: str, factory: Callable[..., Any], **options: Any) -> Any:
    """Call a factory. Its exceptions become BppsaError."""
    try:
        return factory(**options)
    except (BppsaError, MemoryError):
        raise
    except Exception as error:
        raise BppsaError(f"{kind} {spec!r} raises {type(error).__name__}: {error}") from error


def _load_file(kind: str, file: str) -> Any:
    path = as_path(f"a {kind}", "its file", file, error=BppsaError)
    if not path.is_file():
        raise BppsaError(f"{kind} file {file!r} does not exist: pass the path of an existing Python file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


#: The layers of the built-in cells; rnn is rnn_tanh, as PyTorch's RNN is by default.
CELLS: dict[str, Callable[..., Recurrent]] = {
    "rnn": RNN,
    "rnn_tanh": RNN,
    "rnn_relu": partial(RNN, nonlinearity="relu"),
    "gru": GRU,
    "lstm": LSTM,
}
#: Steps, features and classes where nothing is said of them: of bitstreams (section 4.1), and of the MFCC
#: features of IRMAS, set M (section 4.2).
BITSTREAMS, MFCC = ((1000, 1), 10), ((517, 24), 11)
SIZES = {"gru": MFCC, "lstm": MFCC}


def of_cell(
    cell: str | Cell | None = None,
    input_shape: tuple[int, ...] | None = None,
    classes: int | None = None,
    hidden_size: int = 20,
    num_layers: int = 1,
    bidirectional: bool = False,
    outputs: str = "last",
    forward_method: str = "auto",
    **options: Any,
) -> Sequential:
    """Create a network of a recurrent layer of a cell, and a linear layer that reads its last output.

    Parameters
    ----------
    cell : str or Cell
        Name of a built-in cell, a `bp.Cell`, or a function that returns a cell, "path/to/file.py:factory" or
        "module:factory".
    input_shape : tuple of int, optional
        (T, F). Default: (517, 24) for "gru" and "lstm", else (1000, 1).
    classes : int, optional
        Number of outputs. Default: 11 for "gru" and "lstm", else 10.
    hidden_size, num_layers, bidirectional, outputs, forward_method
        Arguments of the layer. outputs="all" returns scores at every step, (T, classes).
    **options
        seed, dtype and device of `Sequential`.
    """
    layer = layer_of(cell)
    default_shape, default_classes = SIZES.get(cell, BITSTREAMS) if isinstance(cell, str) else BITSTREAMS
    shape = default_shape if input_shape is None else input_shape
    if len(shape) != 2:
        name = cell.name if isinstance(cell, Cell) else cell
        raise ShapeError(f"{name} got input {shape}: pass sequences (T, F)")
    recurrent = layer(
        shape[1], hidden_size, num_layers, bidirectional=bidirectional, outputs=outputs,
        forward_method=forward_method,
    )  # fmt: skip
    scores = Linear(recurrent.directions * hidden_size, default_classes if classes is None else classes)
    return Sequential([recurrent, scores], input_shape=shape, **options)


def layer_of(cell: str | Cell | None) -> Callable[..., Recurrent]:
    """The layer class or factory of a cell, given as in `of_cell`. Raises BppsaError."""
    if cell is None:
        raise CellError(
            "the model 'cell' got no cell: pass as cell (--cell on the command line) one of "
            f"{', '.join(CELLS)}, path/to/file.py:factory or module:factory"
        )
    if isinstance(cell, str):
        if cell in CELLS:
            return CELLS[cell]
        made = call_factory("cell", cell, load_factory("cell", cell, CELLS))
        if not isinstance(made, Cell):
            raise CellError(
                f"cell {cell!r} returned a {type(made).__name__}: return a bp.Cell from the factory"
            )
        cell = made
    takes = "a name or a bp.Cell"
    return partial(CellLayer, as_instance("the model 'cell'", "cell", cell, Cell, takes, error=CellError))


#: The recurrent network (Elman 1990) that the paper trains on bitstreams (section 4.1).
rnn = partial(of_cell, "rnn")
#: The GRU (Cho et al. 2014) that the paper trains on MFCC features of IRMAS, set M (section 4.2).
gru = partial(of_cell, "gru")
#: An LSTM (Hochreiter and Schmidhuber 1997) instead of the paper's GRU.
lstm = partial(of_cell, "lstm")

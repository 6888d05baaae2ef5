"""RNN, GRU and LSTM, and CellLayer, of any cell."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.arguments import as_choice, as_instance
from bppsa_cupy.cells import Cell
from bppsa_cupy.errors import ArgumentError
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.layers.linear_recurrent import LinearRecurrent
from bppsa_cupy.layers.matrix_recurrent import MatrixRecurrent
from bppsa_cupy.layers.recurrent import Recurrent
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.linear.form import LinearForm

NONLINEARITIES = {"tanh": FORMS["rnn_tanh"], "relu": FORMS["rnn_relu"]}


class RNN(MatrixRecurrent):
    """Elman RNN: h' = f(W_ih x + b_ih + W_hh h + b_hh), where f is tanh or ReLU.

    Parameters
    ----------
    input_size, hidden_size : int
        F input features and H units.
    num_layers : int, default: 1
        Number of stacked layers, called inner layers.
    nonlinearity : {"tanh", "relu"}, default: "tanh"
        The function f.
    *arguments, **options
        bias, batch_first, dropout, bidirectional, outputs and forward_method of `MatrixRecurrent`.

    Raises
    ------
    ShapeError, ArgumentError
        If a size is not a positive integer (ShapeError), or another argument is invalid (ArgumentError).

    Notes
    -----
    Each inner layer and direction has the parameters weight_ih_l0 (H, F), weight_hh_l0 (H, H),
    bias_ih_l0 (H,) and bias_hh_l0 (H,).

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> net = bp.Sequential([bp.RNN(3, 5)], input_shape=(None, 3), device="host")
    >>> net.forward(np.ones((2, 7, 3), np.float32)).shape
    (2, 7, 5)
    >>> net.parameters["0.weight_hh_l0"].shape
    (5, 5)
    """

    arguments = (*MatrixRecurrent.arguments, "nonlinearity")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *arguments: Any,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, *arguments, **options)
        self.nonlinearity = as_choice("RNN", "nonlinearity", nonlinearity, NONLINEARITIES)

    @property
    def cell(self) -> CellForm:
        return NONLINEARITIES[self.nonlinearity]


class GRU(MatrixRecurrent):
    """Gated recurrent unit, as torch.nn.GRU defines it.

    r, z = σ(W_i x + b_i + W_h h + b_h), n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h.

    Parameters
    ----------
    input_size, hidden_size : int
        F input features and H units.
    num_layers, bias, batch_first, dropout, bidirectional
        As in `MatrixRecurrent`.
    **options
        outputs and forward_method, as in `MatrixRecurrent`.

    Notes
    -----
    Parameters per inner layer and direction, with gates in the order r, z, n: weight_ih_l0 (3 H, F),
    weight_hh_l0 (3 H, H), bias_ih_l0 and bias_hh_l0 (3 H,). The Jacobian follows appendix E of Wang et al.
    2020.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> layer = bp.GRU(3, 5, outputs="last")
    >>> layer.output_shape((7, 3)), layer.parameter_shapes()["weight_hh_l0"]
    ((5,), (15, 5))
    """

    cell = FORMS["gru"]


class LSTM(MatrixRecurrent):
    """Long short-term memory, as torch.nn.LSTM defines it.

    i, f, o = σ(W_i x + b_i + W_h h + b_h), g = tanh(W_ig x + b_ig + W_hg h + b_hg), c' = f c + i g,
    h' = o tanh(c').

    Parameters
    ----------
    input_size, hidden_size : int
        F input features and H units.
    num_layers, bias, batch_first, dropout, bidirectional
        As in `MatrixRecurrent`.
    **options
        outputs and forward_method, as in `MatrixRecurrent`.

    Notes
    -----
    Parameters per inner layer and direction, with gates in the order i, f, g, o: weight_ih_l0 (4 H, F),
    weight_hh_l0 (4 H, H), bias_ih_l0 and bias_hh_l0 (4 H,). The state is the pair (h, c).

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> layer = bp.LSTM(3, 5, bidirectional=True)
    >>> layer.output_shape((7, 3)), layer.parameter_shapes()["weight_hh_l0"]
    ((7, 10), (20, 5))
    """

    cell = FORMS["lstm"]


class _OfCell(Recurrent):
    """A recurrent layer whose `definition` is a `bp.Cell`."""

    definition: Cell

    @property
    def unit_parameters(self) -> tuple[str, ...]:
        return self.definition.parameters

    def config(self) -> dict[str, Any]:
        return {"cell": self.definition.name, "digest": self.definition.digest, **super().config()}


class CellLayer(_OfCell, MatrixRecurrent):
    """Recurrent layer of a cell that you define.

    Parameters
    ----------
    cell : Cell
        The step of one unit. If the cell is linear, the constructor returns a `LinearCellLayer`.
    input_size, hidden_size : int
        F input features and H units.
    *arguments, **options
        num_layers, bias, batch_first, dropout, bidirectional, outputs and forward_method, as in
        `MatrixRecurrent`.

    Raises
    ------
    ShapeError
        If `input_size` or `hidden_size` is not a positive integer.
    ArgumentError
        If another argument is invalid.

    Notes
    -----
    Each inner layer and direction has the parameters weight_ih_l0 (G H, F), weight_hh_l0 (R H, H),
    bias_ih_l0 (G H,), bias_hh_l0 (R H,), and NAME_l0 (H,) for each parameter of the cell. G is the number of
    gates and R the number of recurrent gates. The rows follow the order of the gates in the cell.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> layer = bp.CellLayer(bp.Cell.built_in("gru"), 3, 5)
    >>> layer.output_shape((7, 3)), layer.parameter_shapes()["weight_hh_l0"]
    ((7, 5), (15, 5))
    """

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        cell = arguments[0] if arguments else options.get("cell")
        if cls is CellLayer and isinstance(cell, Cell) and cell.is_linear:
            return LinearCellLayer(*arguments, **options)
        return super().__new__(cls)

    def __init__(
        self, cell: Cell, input_size: int, hidden_size: int, *arguments: Any, **options: Any
    ) -> None:
        self.definition = as_instance(type(self).__name__, "cell", cell, Cell, "a bp.Cell")
        super().__init__(input_size, hidden_size, *arguments, **options)

    @property
    def cell(self) -> CellForm:
        return self.definition.form


class ProjectedCellLayer(CellLayer):
    """A `CellLayer` of one inner layer and direction that reads the projected input, (B, T, G H)."""

    projects = False

    def __init__(self, cell: Cell, hidden_size: int, **options: Any) -> None:
        super().__init__(cell, len(cell.gates) * hidden_size, hidden_size, **options)
        self.output = cell.output

    def parameter_shapes(self) -> dict[str, Shape]:
        shapes = super().parameter_shapes()
        return {name: shape for name, shape in shapes.items() if "_ih" not in name}


class LinearCellLayer(_OfCell, LinearRecurrent):
    """Recurrent layer of a linear cell that you define. Forward and backward passes are exact scans.

    Parameters
    ----------
    cell : Cell
        A linear cell: one state c' = a c + b and no recurrent gates.
    input_size, hidden_size : int
        F input features and H units.
    *arguments, **options
        bias, batch_first, outputs and forward_method of `LinearRecurrent`.

    Raises
    ------
    ArgumentError
        If the cell is not linear.

    Notes
    -----
    Parameters, for G gates in the order of the cell: weight_ih_l0 (G H, F), bias_ih_l0 (G H,), and NAME_l0
    (H,) for each parameter of the cell. The state is c.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> def step(x, u, s, p):
    ...     return {"c": bp.cells.sigmoid(x.f) * s.c + x.c}
    >>> cell = bp.Cell("forget", gates=["f", "c"], states=["c"], recurrent=[], step=step)
    >>> type(bp.CellLayer(cell, 3, 5)).__name__
    'LinearCellLayer'
    """

    def __init__(
        self, cell: Cell, input_size: int, hidden_size: int, *arguments: Any, **options: Any
    ) -> None:
        self.definition = as_instance(type(self).__name__, "cell", cell, Cell, "a bp.Cell")
        if not cell.is_linear:
            raise ArgumentError(f"LinearCellLayer got {cell!r}, which is not linear: use bp.CellLayer")
        super().__init__(input_size, hidden_size, *arguments, **options)

    @property
    def cell(self) -> LinearForm:
        assert self.definition.linear_form is not None
        return self.definition.linear_form

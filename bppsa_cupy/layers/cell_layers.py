"""RNN, GRU and LSTM; CellLayer, of any cell; and the layers of built-in cells that PyTorch has not."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from bppsa_cupy.arguments import as_instance, as_number, is_one_of
from bppsa_cupy.cells import Cell
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.layers.gated_recurrent import GatedRecurrent
from bppsa_cupy.layers.matrix_recurrent import MatrixRecurrent
from bppsa_cupy.layers.recurrent import Recurrent
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.linear.form import LinearForm

NONLINEARITIES = {"tanh": FORMS["rnn_tanh"], "relu": FORMS["rnn_relu"]}


class RNN(MatrixRecurrent):
    """h_t = f(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh), f being tanh or ReLU.

    Arguments beside `nonlinearity` are those of `MatrixRecurrent`. Parameters a layer and direction, as
    PyTorch names them: weight_ih_l0 (H, F), weight_hh_l0 (H, H), bias_ih_l0 and bias_hh_l0 (H,).
    """

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
        if not is_one_of(nonlinearity, NONLINEARITIES):
            raise ShapeError(f"RNN got nonlinearity={nonlinearity!r}: it takes 'tanh' or 'relu'")
        self.nonlinearity = nonlinearity

    @property
    def cell(self) -> CellForm:
        return NONLINEARITIES[self.nonlinearity]

    def config(self) -> dict[str, Any]:
        return {**super().config(), "nonlinearity": self.nonlinearity}


class GRU(MatrixRecurrent):
    """Gated recurrent units (paper, appendix E), in PyTorch's form: r, z = σ(W_i x + b_i + W_h h + b_h),
    n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h.

    Arguments are those of `MatrixRecurrent`. Parameters a layer and direction, gates stacked as r, z, n:
    weight_ih_l0 (3 H, F), weight_hh_l0 (3 H, H), bias_ih_l0 and bias_hh_l0 (3 H,).
    """

    cell = FORMS["gru"]


class LSTM(MatrixRecurrent):
    """Long short-term memory: i, f, o = σ(W_i x + b_i + W_h h + b_h), g = tanh(likewise),
    c' = f c + i g, h' = o tanh(c').

    Arguments are those of `MatrixRecurrent`; proj_size may be 0 alone. Parameters a layer and direction,
    gates stacked as i, f, g, o: weight_ih_l0 (4 H, F), weight_hh_l0 (4 H, H), bias_ih_l0 and bias_hh_l0
    (4 H,). Its state is the pair (h, c).
    """

    cell = FORMS["lstm"]

    def __init__(
        self, input_size: int, hidden_size: int, *arguments: Any, proj_size: int = 0, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, *arguments, **options)
        as_number("LSTM", "proj_size", proj_size, lambda size: size == 0, "0 alone")

    def config(self) -> dict[str, Any]:
        return {**super().config(), "proj_size": 0}


class _OfCell(Recurrent):
    """A recurrent layer of a `definition`, a `bp.Cell`."""

    definition: Cell

    @property
    def unit_parameters(self) -> tuple[str, ...]:
        return self.definition.parameters

    def config(self) -> dict[str, Any]:
        return {"cell": self.definition.name, "digest": self.definition.digest, **super().config()}


class CellLayer(_OfCell, MatrixRecurrent):
    """A recurrent layer whose unit does what `cell`, a `bp.Cell`, says.

    The other arguments are those of `MatrixRecurrent`. Parameters a layer and direction, gates stacked in the
    cell's order: weight_ih_l0 (G H, F), weight_hh_l0 (R H, H) of the R recurrent gates, bias_ih_l0 (G H,) and
    bias_hh_l0 (R H,), and each of the cell's own by its name, NAME_l0 (H,). Without recurrent gates there is
    neither weight_hh nor bias_hh, and products of Jacobians are blocks of P x P a unit, P states; the pass
    goes forward "serial" or, where the cell is affine in its former states, "chunked", which is exact, else
    by "newton". Of a linear cell it gives a `LinearCellLayer`.
    """

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        cell = arguments[0] if arguments else options.get("cell")
        if cls is CellLayer and isinstance(cell, Cell) and cell.is_linear:
            return LinearCellLayer(*arguments, **options)
        return super().__new__(cls)

    def __init__(
        self, cell: Cell, input_size: int, hidden_size: int, *arguments: Any, **options: Any
    ) -> None:
        name = type(self).__name__
        self.definition = as_instance(name, "cell", cell, Cell, "a bp.Cell")
        if self.cell.affine:
            self.forward_methods = ("auto", "serial", "chunked")
        super().__init__(input_size, hidden_size, *arguments, **options)
        if not self.cell.sums:
            if self.heads > 1:
                raise ShapeError(
                    f"{name} got heads={self.heads}, and its cell has no recurrent gates: without W_hh each "
                    "unit sees itself alone; leave heads out"
                )
            self.heads = self.hidden_size

    @property
    def cell(self) -> CellForm:
        return self.definition.form


class ProjectedCellLayer(CellLayer):
    """A `CellLayer` of one inner layer and direction whose input is the projected input, (B, T, G H)."""

    projects = False

    def __init__(self, cell: Cell, hidden_size: int, **options: Any) -> None:
        super().__init__(cell, len(cell.gates) * hidden_size, hidden_size, **options)

    def parameter_shapes(self) -> dict[str, Shape]:
        shapes = super().parameter_shapes()
        return {name: shape for name, shape in shapes.items() if "_ih" not in name}


class LinearCellLayer(_OfCell, GatedRecurrent):
    """A recurrent layer whose unit does what `cell`, a linear `bp.Cell`, says: one exact scan each way.

    The other arguments are those of `GatedRecurrent`. Parameters a layer and direction, gates stacked in the
    cell's order: weight_ih_l0 (G H, F), bias_ih_l0 (G H,), and each of the cell's own by its name, NAME_l0
    (H,). Its state is the one that the cell's step carries.
    """

    def __init__(
        self, cell: Cell, input_size: int, hidden_size: int, *arguments: Any, **options: Any
    ) -> None:
        self.definition = as_instance(type(self).__name__, "cell", cell, Cell, "a bp.Cell")
        if not cell.is_linear:
            raise ShapeError(f"LinearCellLayer got {cell!r}, which is no linear cell: take bp.CellLayer")
        super().__init__(input_size, hidden_size, *arguments, **options)

    @property
    def cell(self) -> LinearForm:
        assert self.definition.linear_form is not None
        return self.definition.linear_form


class BuiltInCellLayer(CellLayer):
    """A layer of the built-in cell of the name `built_in`."""

    built_in: ClassVar[str]

    def __init__(self, input_size: int, hidden_size: int, *arguments: Any, **options: Any) -> None:
        super().__init__(Cell.built_in(self.built_in), input_size, hidden_size, *arguments, **options)


class CTRNN(BuiltInCellLayer):
    """Leaky units, h' = (1 - α) h + α tanh(W_ih x + b_ih + W_hh h + b_hh), with a learned α per unit,
    alpha_l0 (H,), from values between 0.1 and 1."""

    built_in = "ctrnn"

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        values = super().initialize(generator)
        for name in values:
            if name.startswith("alpha_"):
                values[name] = generator.uniform(0.1, 1.0, values[name].shape)
        return values


class MGU(BuiltInCellLayer):
    """The minimal gated unit (Zhou et al. 2016), with the forget gate after the recurrent product:
    f = σ(x_f + u_f), n = tanh(x_n + f u_n), h' = h + f (n - h), x and u being W_ih x + b_ih and
    W_hh h + b_hh."""

    built_in = "mgu"


class UGRNN(BuiltInCellLayer):
    """The update-gate network (Collins et al. 2017): g = σ(x_g + u_g), c = tanh(x_c + u_c),
    h' = g h + (1 - g) c, x and u being W_ih x + b_ih and W_hh h + b_hh."""

    built_in = "ugrnn"


class PeepholeLSTM(BuiltInCellLayer):
    """An LSTM whose gates see the cell (Gers & Schmidhuber 2000): i and f the former one through ci_l0 and
    cf_l0 (H,), o the new one through co_l0."""

    built_in = "peephole_lstm"

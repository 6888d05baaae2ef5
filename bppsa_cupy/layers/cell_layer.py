"""CellLayer: a recurrent layer of any cell; and those of built-in cells with W_hh that PyTorch has not."""

from __future__ import annotations

from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_instance
from bppsa_cupy.cells import Cell, ctrnn
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.gated_recurrent import GatedRecurrent
from bppsa_cupy.layers.matrix_recurrent import MatrixRecurrent
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.linear.form import LinearForm


class CellLayer(MatrixRecurrent):
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

    @property
    def unit_parameters(self) -> tuple[str, ...]:
        return self.definition.parameters

    def config(self) -> dict[str, Any]:
        return {"cell": self.definition.name, "digest": self.definition.digest, **super().config()}


class LinearCellLayer(GatedRecurrent):
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

    @property
    def unit_parameters(self) -> tuple[str, ...]:
        return self.definition.parameters

    def config(self) -> dict[str, Any]:
        return {"cell": self.definition.name, "digest": self.definition.digest, **super().config()}


class CTRNN(CellLayer):
    """Leaky units, h' = (1 - α) h + α tanh(W_ih x + b_ih + W_hh h + b_hh): α in (0, 1] for all, or where it
    is None learnt, one a unit, as alpha_l0 (H,), from values between 0.1 and 1."""

    def __init__(
        self, input_size: int, hidden_size: int, *arguments: Any, alpha: float | None = None, **options: Any
    ) -> None:
        super().__init__(ctrnn(alpha), input_size, hidden_size, *arguments, **options)

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        values = super().initialize(generator)
        for name in values:
            if name.startswith("alpha_"):
                values[name] = generator.uniform(0.1, 1.0, values[name].shape)
        return values


class MGU(CellLayer):
    """The minimal gated unit (Zhou et al. 2016), with the forget gate after the recurrent product:
    f = σ(x_f + u_f), n = tanh(x_n + f u_n), h' = h + f (n - h), x and u being W_ih x + b_ih and
    W_hh h + b_hh."""

    def __init__(self, input_size: int, hidden_size: int, *arguments: Any, **options: Any) -> None:
        super().__init__(Cell.built_in("mgu"), input_size, hidden_size, *arguments, **options)


class UGRNN(CellLayer):
    """The update-gate network (Collins et al. 2017): g = σ(x_g + u_g), c = tanh(x_c + u_c),
    h' = g h + (1 - g) c, x and u being W_ih x + b_ih and W_hh h + b_hh."""

    def __init__(self, input_size: int, hidden_size: int, *arguments: Any, **options: Any) -> None:
        super().__init__(Cell.built_in("ugrnn"), input_size, hidden_size, *arguments, **options)


class PeepholeLSTM(CellLayer):
    """An LSTM whose gates see the cell (Gers & Schmidhuber 2000): i and f the former one through ci_l0 and
    cf_l0 (H,), o the new one through co_l0."""

    def __init__(self, input_size: int, hidden_size: int, *arguments: Any, **options: Any) -> None:
        super().__init__(Cell.built_in("peephole_lstm"), input_size, hidden_size, *arguments, **options)

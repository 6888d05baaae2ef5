"""RNN."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.arguments import is_one_of
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.matrix_recurrent import MatrixRecurrent
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm

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
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        outputs: str = "all",
        forward_method: str = "auto",
        heads: int = 1,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            outputs=outputs, forward_method=forward_method, heads=heads,
        )  # fmt: skip
        if not is_one_of(nonlinearity, NONLINEARITIES):
            raise ShapeError(f"RNN got nonlinearity={nonlinearity!r}: it takes 'tanh' or 'relu'")
        self.nonlinearity = nonlinearity

    @property
    def cell(self) -> CellForm:
        return NONLINEARITIES[self.nonlinearity]

    def config(self) -> dict[str, Any]:
        return {**super().config(), "nonlinearity": self.nonlinearity}

"""LSTM."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.arguments import as_number
from bppsa_cupy.layers.matrix_recurrent import MatrixRecurrent
from bppsa_cupy.raw_kernels.cells import FORMS


class LSTM(MatrixRecurrent):
    """Long short-term memory: i, f, o = σ(W_i x + b_i + W_h h + b_h), g = tanh(likewise),
    c' = f c + i g, h' = o tanh(c').

    Arguments are those of `MatrixRecurrent`; proj_size may be 0 alone. Parameters a layer and direction,
    gates stacked as i, f, g, o: weight_ih_l0 (4 H, F), weight_hh_l0 (4 H, H), bias_ih_l0 and bias_hh_l0
    (4 H,). Its state is the pair (h, c).
    """

    cell = FORMS["lstm"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        outputs: str = "all",
        forward_method: str = "auto",
        heads: int = 1,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            outputs=outputs, forward_method=forward_method, heads=heads,
        )  # fmt: skip
        as_number("LSTM", "proj_size", proj_size, lambda size: size == 0, "0 alone")

    def config(self) -> dict[str, Any]:
        return {**super().config(), "proj_size": 0}

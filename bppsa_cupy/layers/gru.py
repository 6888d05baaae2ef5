"""GRU."""

from __future__ import annotations

from bppsa_cupy.layers.matrix_recurrent import MatrixRecurrent
from bppsa_cupy.raw_kernels.cells import FORMS


class GRU(MatrixRecurrent):
    """Gated recurrent units (paper, appendix E), in PyTorch's form: r, z = σ(W_i x + b_i + W_h h + b_h),
    n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h.

    Arguments are those of `MatrixRecurrent`. Parameters a layer and direction, gates stacked as r, z, n:
    weight_ih_l0 (3 H, F), weight_hh_l0 (3 H, H), bias_ih_l0 and bias_hh_l0 (3 H,).
    """

    cell = FORMS["gru"]

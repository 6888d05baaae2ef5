"""MinGRU and MinLSTM."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.arguments import is_one_of
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.gated_recurrent import GatedRecurrent
from bppsa_cupy.raw_kernels.linear.form import LinearForm
from bppsa_cupy.raw_kernels.linear_cells import LINEAR_FORMS

CANDIDATES = ("linear", "positive")


class _Minimal(GatedRecurrent):
    """What both share: the candidate, W_h x + b_h as it is ("linear"), or g of it ("positive"), g(x) being
    x + 1/2 from 0 on and σ(x) below."""

    _name: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *arguments: Any,
        candidate: str = "linear",
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, *arguments, **options)
        if not is_one_of(candidate, CANDIDATES):
            takes = " or ".join(map(repr, CANDIDATES))
            raise ShapeError(f"{type(self).__name__} got candidate={candidate!r}: it takes {takes}")
        self.candidate = candidate

    @property
    def cell(self) -> LinearForm:
        return LINEAR_FORMS[self._name + ("_positive" if self.candidate == "positive" else "")]

    def config(self) -> dict[str, Any]:
        return {**super().config(), "candidate": self.candidate}


class MinGRU(_Minimal):
    """minGRU (Feng et al. 2024, section 3.1): h_t = (1 - z_t) h_{t-1} + z_t h̃_t, z = σ(W_z x + b_z).

    candidate  "linear", h̃ = W_h x + b_h, as in section 3.1; "positive", h̃ = g(W_h x + b_h), as in appendix
               B.3 and in code that scans logarithms

    The other arguments are those of `GatedRecurrent`. Parameters a layer and direction, gates stacked as h,
    z: weight_ih_l0 (2 H, F), bias_ih_l0 (2 H,).
    """

    _name = "mingru"


class MinLSTM(_Minimal):
    """minLSTM (Feng et al. 2024, section 3.2): h_t = f'_t h_{t-1} + i'_t h̃_t, f' and i' being f = σ(W_f x +
    b_f) and i = σ(W_i x + b_i) over their sum; W x + b below -85 counts as that.

    Arguments are those of `MinGRU`. Parameters a layer and direction, gates stacked as f, i, h: weight_ih_l0
    (3 H, F), bias_ih_l0 (3 H,).
    """

    _name = "minlstm"

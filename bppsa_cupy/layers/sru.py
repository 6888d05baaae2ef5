"""SRU and QRNN: gates of the input alone, and an output gate."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.gated_recurrent import GatedRecurrent
from bppsa_cupy.raw_kernels.linear_cells import LINEAR_FORMS


class SRU(GatedRecurrent):
    """A simple recurrent unit (Lei et al. 2018) whose gates read the input alone, as `v1=True` of its code:
    c_t = f c_{t-1} + (1 - f) W_c x, h_t = r c_t + (1 - r) x, f = σ(W_f x + b_f), r = σ(W_r x + b_r).

    Arguments are those of `GatedRecurrent`. Parameters a layer and direction, gates stacked as c, f, r:
    weight_ih_l0 (3 H, F), bias_ih_l0 (2 H,) of f and r. Where F is not H, weight_ih_l0 is (4 H, F), and its
    last rows make of x what is added in its place. Its state is c.
    """

    cell = LINEAR_FORMS["sru"]
    biased = (1, 2)

    def skips(self, inputs: int) -> bool:
        return inputs == self.hidden_size


class QRNN(GatedRecurrent):
    """A quasi-recurrent network's layer with fo-pooling (Bradbury et al. 2017, equation 4): c_t = f c_{t-1} +
    (1 - f) z, h_t = o c_t, z = tanh(W_z x + b_z), f and o = σ(likewise).

    window  steps that the gates see, 1 or 2: with 2, W x is W of the former input (of a direction's walk) and
            the present one side by side, and the first step has zeros before it

    The other arguments are those of `GatedRecurrent`. Parameters a layer and direction, gates stacked as z,
    f, o: weight_ih_l0 (3 H, window F), bias_ih_l0 (3 H,). Its state is c.
    """

    cell = LINEAR_FORMS["qrnn"]

    def __init__(
        self, input_size: int, hidden_size: int, *arguments: Any, window: int = 1, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, *arguments, **options)
        self._window = as_integer("QRNN", "window", window, 1)
        if self._window > 2:
            raise ShapeError(f"QRNN got window={window}: it takes 1 or 2")

    @property
    def window(self) -> int:
        return self._window

    @property
    def steps_alone(self) -> bool:
        return super().steps_alone and self._window == 1

    def config(self) -> dict[str, Any]:
        return {**super().config(), "window": self.window}

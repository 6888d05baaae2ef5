"""What a recurrent cell is to the scans over time: sizes and kernels, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Kernel


@dataclass(frozen=True)
class Cell:
    """One kind of cell; gates are stacked in PyTorch's order. Sizes below are in units of H.

    name        "rnn", "gru" or "lstm"; its kernels are NAME_forward, NAME_backward, NAME_reduce, ...
    gates       rows of weight_ih, weight_hh and of the projected input
    states      rows of the state that goes from step to step: h, or h and c
    kept        rows of gate values the forward pass keeps for the backward one
    separate    rows of W_hh h + b_hh, the last ones, that are not added to the projected input as they are:
                GRU's m = W_hn h + b_hn, which r is multiplied by
    relu        whether the nonlinearity is ReLU, not tanh; None for a cell without that choice
    """

    name: str
    gates: int
    states: int
    kept: int
    separate: int = 0
    relu: bool | None = None

    @property
    def forward(self) -> Kernel:
        return KERNELS[f"{self.name}_forward"]

    @property
    def backward(self) -> Kernel:
        return KERNELS[f"{self.name}_backward"]

    @property
    def reduce(self) -> Kernel:
        return KERNELS[f"{self.name}_reduce"]

    @property
    def joined(self) -> int:
        """Rows of W_hh h + b_hh that are added to the projected input as they are."""
        return self.gates - self.separate

    @property
    def deltas(self) -> int:
        """Rows of the gradient the backward pass gives a step: by the projected input, then by the separate
        rows of W_hh h + b_hh."""
        return self.gates + self.separate

    @property
    def flags(self) -> tuple[int, ...]:
        """The scalars this cell's kernels take between `per_step` and `reverse`."""
        return () if self.relu is None else (int(self.relu),)


RNN_TANH = Cell("rnn", gates=1, states=1, kept=0, relu=False)
RNN_RELU = Cell("rnn", gates=1, states=1, kept=0, relu=True)
GRU = Cell("gru", gates=3, states=1, kept=4, separate=1)
LSTM = Cell("lstm", gates=4, states=2, kept=4)

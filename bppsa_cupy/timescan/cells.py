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
    deltas      rows of the gradient the backward pass gives a step: the first `gates` are by the projected
                input; GRU's fourth block is by m = W_hn h + b_hn
    relu        whether the nonlinearity of "rnn" is ReLU, not tanh
    """

    name: str
    gates: int
    states: int
    kept: int
    deltas: int
    relu: bool = False

    @property
    def forward(self) -> Kernel:
        return KERNELS[f"{self.name}_forward"]

    @property
    def backward(self) -> Kernel:
        return KERNELS[f"{self.name}_backward"]

    @property
    def reduce(self) -> Kernel:
        return KERNELS[f"{self.name}_reduce"]

    def state_size(self, hidden: int) -> int:
        """S: elements of the state of one sample."""
        return self.states * hidden

    @property
    def flags(self) -> tuple[int, ...]:
        """The scalars this cell's kernels take between `per_step` and `reverse`."""
        return (int(self.relu),) if self.name == "rnn" else ()


RNN_TANH = Cell("rnn", gates=1, states=1, kept=0, deltas=1)
RNN_RELU = Cell("rnn", gates=1, states=1, kept=0, deltas=1, relu=True)
GRU = Cell("gru", gates=3, states=1, kept=4, deltas=4)
LSTM = Cell("lstm", gates=4, states=2, kept=4, deltas=4)

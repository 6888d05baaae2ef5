"""One direction of one inner layer, as the scans over time see it: sizes and arrays."""

from __future__ import annotations

from dataclasses import dataclass

from bppsa_cupy.devices import Array
from bppsa_cupy.timescan.sizes import WalkSize


@dataclass(frozen=True, eq=False)
class Walk:
    """A cell that walks over steps s = 0, …, T - 1; step s is time t = s, or T - 1 - s where `reverse`.

    S = cell.states * H. Arrays are by time, batch innermost. A step with t >= lengths[b] leaves sample b's
    state as it is.

    weight_hh  (G H, H)
    bias_n     (cell.separate * H), a GRU's b_hn; None for a cell without separate rows
    lengths    (B), int64
    initial    (S, B), the state before step 0
    projected  (T, G H, B), the input times weight_ih, with the biases
    state      (T, S, B), out of the forward pass
    gates      (T, kept H, B), out of the forward pass; None for a cell that keeps none
    final      (S, B), out of the forward pass: the state after the last step
    """

    size: WalkSize
    reverse: bool
    weight_hh: Array
    bias_n: Array | None
    lengths: Array
    initial: Array
    projected: Array
    state: Array
    gates: Array | None
    final: Array

    @property
    def kept(self) -> tuple[Array, ...]:
        """The gates, for kernels of a cell that keeps them."""
        return () if self.gates is None else (self.gates,)

    @property
    def before(self) -> tuple[Array, ...]:
        """The initial state, for kernels of a cell that keeps gates: the others' Jacobians do without."""
        return () if self.gates is None else (self.initial,)

    def or_none(self, array: Array | None) -> Array:
        """`array`, or what kernels take in its place where there is none."""
        return self.state.reshape(-1)[:0] if array is None else array

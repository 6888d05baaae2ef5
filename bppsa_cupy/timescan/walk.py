"""One direction of one inner layer, as the scans over time see it: sizes and arrays."""

from __future__ import annotations

from dataclasses import dataclass

from bppsa_cupy.devices import Array
from bppsa_cupy.timescan.sizes import WalkSize


@dataclass(frozen=True, eq=False)
class Walk:
    """A cell that walks over steps s = 0, …, T - 1; step s is time t = s, or T - 1 - s where `reverse`.

    Arrays with samples, B, lie in memory as `Device.arrange` has them. G, P, K and Q are the cell's gates,
    states, kept rows and unit parameters, of H units each, those of a head side by side, h = H / heads of
    them. A step with t >= lengths[b] leaves a sample's state as it is.

    weight_hh  (heads, G h, h)
    bias_hh    (heads, G h); zeros where there are no biases
    unit       (heads, Q h)
    lengths    (B), int64
    initial    (P H, B), the state before step 0
    projected  (T, G H, B), the input times weight_ih, with bias_ih
    state      (T, P H, B), out of the forward pass
    gates      (T, K H, B), out of the forward pass
    final      (P H, B), out of the forward pass: the state after the last step
    """

    size: WalkSize
    reverse: bool
    weight_hh: Array
    bias_hh: Array
    unit: Array
    lengths: Array
    initial: Array
    projected: Array
    state: Array
    gates: Array
    final: Array

    @property
    def weights(self) -> tuple[Array, Array]:
        """What a step's Jacobian takes beside states and gates, as kernels take it."""
        return self.weight_hh, self.unit

    def time(self, step: int) -> int:
        """Which time step `step` is."""
        return self.size.steps - 1 - step if self.reverse else step

    def before(self, step: int) -> Array:
        """The states before step `step`, (P H, B); of step T, those after the last one."""
        return self.state[self.time(step - 1)] if step else self.initial

    def or_none(self, array: Array | None) -> Array:
        """`array`, or what kernels take in its place where there is none."""
        return self.unit.reshape(-1)[:0] if array is None else array


@dataclass(frozen=True, eq=False)
class Weights:
    """Parameters of one direction of one inner layer, or the gradients by them; biases are None without.

    weight_ih           (G H, I), I being the features of the inner layer's input
    weight_hh           (R H, h), of R recurrent gates, h being the units of a head: of each unit, the weights
                        of its own head's; None without such gates
    bias_ih, bias_hh    (G H,) and (R H,)
    unit                the cell's unit parameters, (H,) each
    """

    weight_ih: Array
    weight_hh: Array | None
    bias_ih: Array | None
    bias_hh: Array | None
    unit: tuple[Array, ...]

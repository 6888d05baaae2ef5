"""Sizes of the passes of recurrent layers, and one direction of one inner layer as scans over time see it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from bppsa_cupy.devices import Array
from bppsa_cupy.raw_kernels.frames.form import CellForm


@dataclass(frozen=True)
class WalkSize:
    """Sizes of a walk over time: the cell, T, B, H and the bytes of a value."""

    cell: CellForm
    steps: int
    batch: int
    hidden: int
    itemsize: int

    @cached_property
    def state(self) -> int:
        """S, the elements of the state of one sample."""
        return self.cell.states * self.hidden

    @cached_property
    def scalars(self) -> tuple[int, int, int]:
        """T, H and B, as kernels take them."""
        return self.steps, self.hidden, self.batch

    @cached_property
    def boundary_scalars(self) -> tuple[int, int, int]:
        """P, H and B, as scans over boundaries take them."""
        return self.cell.states, self.hidden, self.batch

    def chunks(self, chunk: int) -> int:
        """How many chunks of `chunk` steps there are, the last of which may be shorter."""
        return -(-self.steps // chunk)


@dataclass(frozen=True)
class StackSize:
    """Sizes of a stack: those of each walk, F, inner layers, directions, whether there are biases,
    whether walks read a gradient with respect to every step's first state, the names of the cell's unit
    parameters, whether the input is projected by W_ih, or the caller gives the projected input, and the place
    of the state that is put out (see `form_of`)."""

    walk: WalkSize
    inputs: int
    layers: int
    directions: int
    bias: bool
    every_step: bool
    unit: tuple[str, ...] = ()
    projects: bool = True
    output: int = 0

    @property
    def step_bytes(self) -> int:
        """Bytes of a step's input, projections, states and kept rows, of all samples."""
        cell, walk = self.walk.cell, self.walk
        rows = cell.gates + self.layers * (cell.states + cell.saved)
        return (self.inputs + rows * walk.hidden) * walk.batch * walk.itemsize

    def inputs_of(self, layer: int) -> int:
        """Features of an inner layer's input."""
        return self.directions * self.walk.hidden if layer else self.inputs


@dataclass(frozen=True, eq=False)
class Walk:
    """A cell that walks over steps s = 0, …, T - 1; step s is time t = s, or T - 1 - s where `reverse`.

    Arrays with samples, B, lie in memory as `Device.arrange` has them. G, P, K and Q are the cell's gates,
    states, kept rows and unit parameters, of H units each. A step with t >= lengths[b] leaves a sample's
    state as it is.

    weight_hh  (R H, H), of R recurrent gates
    bias_hh    (R H,); zeros where there are no biases
    unit       (Q H,)
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
        return self.unit[:0] if array is None else array


@dataclass(frozen=True, eq=False)
class Weights:
    """Parameters of one direction of one inner layer, or the gradients with respect to them; biases are None
    without.

    weight_ih           (G H, I), I being the features of the inner layer's input; None where the input is
                        the projected one
    weight_hh           (R H, H), of R recurrent gates
    bias_ih, bias_hh    (G H,) and (R H,)
    unit                the cell's unit parameters, (H,) each
    """

    weight_ih: Array | None
    weight_hh: Array
    bias_ih: Array | None
    bias_hh: Array | None
    unit: tuple[Array, ...]

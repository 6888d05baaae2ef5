"""What the transposed Jacobians of recurrent cells share: one pattern, values for all steps at once."""

from __future__ import annotations

import abc
from functools import cached_property

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.timescan import Walk


class CellJacobian(abc.ABC):
    """(∂s_t/∂s_{t-1})ᵀ of a recurrent cell's state s of one sample, t - 1 being the step before in the
    order of the walk: rows are the elements of the state before, columns those of the state after.

    Law: the pattern follows from H alone, is the same for every step, and holds the diagonal: a step behind
    a sample's end is the identity.
    """

    def __init__(self, hidden: int) -> None:
        self.hidden = hidden

    @cached_property
    def pattern(self) -> Pattern:
        """The CSR pattern of every step."""
        return self.make_pattern()

    def make_pattern(self) -> Pattern:
        """Dense (H, H), unless the cell has another."""
        return Pattern.dense(self.hidden, self.hidden)

    @abc.abstractmethod
    def fill(self, device: Device, walk: Walk, values: Array) -> None:
        """Write `values` (T, nnz, B), by time, from a walk whose forward pass has run."""

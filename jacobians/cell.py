"""The transposed Jacobian of a recurrent cell: one pattern, values for all steps at once."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.timescan import Walk


class CellJacobian:
    """(∂s_t/∂s_{t-1})ᵀ of a recurrent cell's state s of one sample, t - 1 being the step before in the
    order of the walk: rows are the elements of the state before, columns those of the state after, each
    state's units together.

    A former and a new state make a block: dense where the one reaches the other through W_hh, diagonal where
    it does so unit by unit, none else. A GRU's is dense, diag(z) included (paper, equations 9 to 11); an
    LSTM's h reaches h' and c' densely, its c either unit by unit: 2 H² + 2 H entries.

    Law: the pattern follows from cell and H alone, is the same for every step, and holds the diagonal: a step
    after a sample's end is the identity.

    Parameters
    ----------
    form, hidden
        The cell and H.
    """

    def __init__(self, form: CellForm, hidden: int) -> None:
        self.form, self.hidden = form, hidden

    @cached_property
    def pattern(self) -> Pattern:
        """The CSR pattern of every step."""
        H, counts, columns = self.hidden, [], []
        for state in range(self.form.states):
            blocks = [(later, dense) for former, later, dense in self.form.blocks if former == state]
            parts = [
                later * H + (np.tile(np.arange(H), (H, 1)) if dense else np.arange(H)[:, None])
                for later, dense in blocks
            ]
            rows = np.concatenate(parts, axis=1)
            columns.append(rows.reshape(-1))
            counts += [rows.shape[1]] * H
        size = self.form.states * H
        return Pattern((size, size), np.concatenate([[0], np.cumsum(counts)]), np.concatenate(columns))

    def fill(self, device: Device, walk: Walk, values: Array) -> None:
        """Write `values` (T, nnz, B), by time, from a walk whose forward pass has run."""
        device.launch(
            kernels_of(self.form)["fill"], walk.state, walk.gates, walk.initial, walk.weight_hh, walk.unit,
            walk.lengths, values, *walk.size.scalars, walk.reverse,
        )  # fmt: skip

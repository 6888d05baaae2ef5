"""The transposed Jacobian of an LSTM cell over its state (h, c)."""

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.jacobians.cell import CellJacobian
from bppsa_cupy.raw_kernels.lstm_fill import KERNEL
from bppsa_cupy.timescan import Walk


class LSTMCellJacobian(CellJacobian):
    """Blocks [[∂h'/∂h, ∂c'/∂h], [∂h'/∂c, ∂c'/∂c]]ᵀ (2 H, 2 H): the upper two dense, the lower two
    diagonal, 2 H² + 2 H entries."""

    def make_pattern(self) -> Pattern:
        H = self.hidden
        indptr = np.concatenate([np.arange(H + 1) * 2 * H, 2 * H * H + 2 * np.arange(1, H + 1)])
        own = np.arange(H)
        indices = np.concatenate([np.tile(np.arange(2 * H), H), np.stack([own, H + own], 1).reshape(-1)])
        return Pattern((2 * H, 2 * H), indptr, indices)

    def fill(self, device: Device, walk: Walk, values: Array) -> None:
        device.launch(
            KERNEL, walk.state, walk.gates, walk.initial, walk.weight_hh, walk.lengths, values,
            *walk.size.scalars, walk.reverse,
        )  # fmt: skip

"""The transposed Jacobian of a tanh or ReLU cell: W_hhᵀ diag(f'(h_t))."""

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.jacobians.cell import CellJacobian
from bppsa_cupy.raw_kernels.rnn_fill import KERNEL
from bppsa_cupy.timescan import Walk


class RNNCellJacobian(CellJacobian):
    """Dense (H, H): 1 - h² of tanh, 1 where h > 0 of ReLU, times the weights."""

    def fill(self, device: Device, walk: Walk, values: Array) -> None:
        device.launch(
            KERNEL, walk.state, walk.weight_hh, walk.lengths, values, *walk.size.scalars,
            *walk.size.cell.flags,
        )  # fmt: skip

"""The transposed Jacobian of a GRU cell (paper, equations 9 to 11)."""

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.jacobians.cell import CellJacobian
from bppsa_cupy.raw_kernels.gru_fill import KERNEL
from bppsa_cupy.timescan import Walk


class GRUCellJacobian(CellJacobian):
    """Dense (H, H): diag(z) and the weights' parts through r, z and n."""

    def fill(self, device: Device, walk: Walk, values: Array) -> None:
        device.launch(
            KERNEL, walk.state, walk.gates, walk.initial, walk.weight_hh, walk.lengths, values,
            *walk.size.scalars, walk.reverse,
        )  # fmt: skip

"""The transposed Jacobian of normalisation by the root mean square."""

from __future__ import annotations

from collections.abc import Mapping

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.jacobians.linear import LinearJacobian
from bppsa_cupy.raw_kernels.norms import rms_norm_fill


class RMSNormJacobian(TransposedJacobian):
    """A dense block (width, width) a row, w_j (r [i = j] - x_i x_j r³ / width) of `saved["input"]` and
    `saved["inverse"]`, r = 1 / sqrt(mean square + eps); w is `parameters["weight"]` where there is one."""

    depends_on = "sample"

    def __init__(self, width: int, rows: int) -> None:
        self.width, self.rows = width, rows

    def bytes_to_make(self) -> int:
        return self._blocks().bytes_to_make()

    def make_pattern(self) -> Pattern:
        return self._blocks().make_entries()[0]

    def _blocks(self) -> LinearJacobian:
        return LinearJacobian(self.width, self.width, self.rows)

    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Array], values: Array
    ) -> None:
        weight, inverse = parameters.get("weight"), saved["inverse"]
        device.launch(
            rms_norm_fill, saved["input"], inverse[:0] if weight is None else weight.reshape(-1),
            inverse, values, self.rows, self.width, values.shape[1], weight is not None,
        )  # fmt: skip

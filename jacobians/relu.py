"""The transposed Jacobian of ReLU: a whole diagonal (paper, algorithms 5 to 7)."""

from __future__ import annotations

from collections.abc import Mapping

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.raw_kernels.relu_fill import KERNEL


class ReLUJacobian(TransposedJacobian):
    """diag(y > 0) of `features` elements; `saved["output"]` is y, (B, ...)."""

    depends_on = "sample"

    def __init__(self, features: int) -> None:
        self.features = features

    def make_pattern(self) -> Pattern:
        return Pattern.diagonal(self.features)

    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Array], values: Array
    ) -> None:
        device.launch(KERNEL, saved["output"], values, self.features, values.shape[1])

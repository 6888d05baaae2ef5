"""The transposed Jacobian of dropout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.raw_kernels import dropout_fill


class DropoutJacobian(TransposedJacobian):
    """The whole diagonal: 1 / (1 - p) where an element was kept, else a stored 0; 1 in evaluation mode.

    `saved["kept"]` (B, ...) holds 1 or 0, or is None in evaluation mode; `saved["scale"]` is 1 / (1 - p).
    """

    depends_on = "sample"

    def __init__(self, features: int) -> None:
        self.features = features

    def make_pattern(self) -> Pattern:
        return Pattern.diagonal(self.features)

    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Any], values: Array
    ) -> None:
        if saved["kept"] is None:
            values[...] = 1
            return
        device.launch(
            dropout_fill.KERNEL, saved["kept"], values, self.features, values.shape[1], saved["scale"]
        )

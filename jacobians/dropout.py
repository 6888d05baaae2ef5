"""The transposed Jacobian of dropout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.jacobians.diagonal import DiagonalJacobian
from bppsa_cupy.raw_kernels import dropout_fill


class DropoutJacobian(DiagonalJacobian):
    """The whole diagonal: 1 / (1 - p) where an element was kept, else a stored 0; 1 in evaluation mode.

    `saved["kept"]` (B, ...) holds 1 or 0, or is None in evaluation mode; `saved["scale"]` is 1 / (1 - p).
    """

    kernel = dropout_fill.KERNEL

    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Any], values: Array
    ) -> None:
        if saved["kept"] is None:
            values[...] = 1
            return
        device.launch(self.kernel, saved["kept"], values, self.features, values.shape[1], saved["scale"])

"""The transposed Jacobian of an activation whose forward pass kept its slopes."""

from __future__ import annotations

from collections.abc import Mapping

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.jacobians.diagonal import DiagonalJacobian
from bppsa_cupy.raw_kernels import slope_fill


class ActivationJacobian(DiagonalJacobian):
    """f'(x) of the input x: `saved["slope"]`, (B, ...)."""

    kernel = slope_fill.KERNEL

    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Array], values: Array
    ) -> None:
        device.launch(self.kernel, saved["slope"], values, self.features, values.shape[1])

"""The transposed Jacobian of batch normalisation by fixed statistics."""

from __future__ import annotations

from collections.abc import Mapping

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.jacobians.base import TransposedJacobian


class BatchNormJacobian(TransposedJacobian):
    """The whole diagonal: γ/σ of the element's channel, which `saved["scale"]` (channels,) holds."""

    depends_on = "parameters"

    def __init__(self, channels: int, positions: int) -> None:
        self.channels, self.positions = channels, positions

    def make_pattern(self) -> Pattern:
        return Pattern.diagonal(self.channels * self.positions)

    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Array], values: Array
    ) -> None:
        values.reshape(self.channels, self.positions)[...] = saved["scale"][:, None]

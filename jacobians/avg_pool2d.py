"""The transposed Jacobian of average pooling: the same for every input."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.geometry import Pool2dGeometry
from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.jacobians.windows import plane_pattern


class AvgPool2dJacobian(TransposedJacobian):
    """1 / divisor of the entry's window, where the window holds the entry's input.

    Parameters
    ----------
    divisors : array
        (*out_size) of every plane's windows.
    """

    depends_on = "nothing"

    def __init__(self, geometry: Pool2dGeometry, divisors: np.ndarray) -> None:
        self.geometry, self.divisors = geometry, divisors
        self._values: dict[tuple[Device, np.dtype], Array] = {}

    def make_pattern(self) -> Pattern:
        return plane_pattern(self.geometry)

    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Array], values: Array
    ) -> None:
        key = device, values.dtype
        if key not in self._values:  # what comes from the host comes once
            window = self.pattern.indices % self.pattern.indices.dtype.type(self.divisors.size)
            made = (1.0 / self.divisors).reshape(-1)[window]
            self._values[key] = device.asarray(made.astype(values.dtype))
        values[...] = self._values[key]

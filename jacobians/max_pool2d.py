"""The transposed Jacobian of max-pooling: every candidate of every window."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.geometry import Pool2dGeometry
from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.jacobians.windows import plane_pattern
from bppsa_cupy.raw_kernels.pools import max_pool2d_fill


class MaxPool2dJacobian(TransposedJacobian):
    """1 where the entry's input is the maximum of the entry's window, a stored 0 elsewhere.

    `saved["indices"]` is (B, channels, *out_size) of int32: the input position of each window's
    maximum inside its plane, as the forward pass left it.
    """

    depends_on = "sample"

    def __init__(self, geometry: Pool2dGeometry) -> None:
        self.geometry = geometry
        self._uploaded: dict[Device, tuple[Array, Array]] = {}

    def make_pattern(self) -> Pattern:
        return plane_pattern(self.geometry)

    @cached_property
    def candidates(self) -> np.ndarray:
        """(nnz,) input position of each entry inside its plane."""
        return self.pattern.rows() % self.pattern.indptr.dtype.type(np.prod(self.geometry.in_size))

    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Array], values: Array
    ) -> None:
        if device not in self._uploaded:
            uploaded = device.upload_index(self.pattern.indices), device.upload_index(self.candidates)
            self._uploaded[device] = uploaded
        device.launch(
            max_pool2d_fill, saved["indices"], *self._uploaded[device], values, self.pattern.shape[1],
            *values.shape,
        )  # fmt: skip

"""Transposed Jacobians of elementwise operators: a whole diagonal, filled from the output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.raw_kernels.kernel import Kernel


class DiagonalJacobian(TransposedJacobian):
    """diag(f'(x)) of `features` elements, as a function of y = f(x): `saved["output"]`, (B, ...).

    A subclass names its `kernel`, which takes (output, values, features, batch).
    """

    depends_on = "sample"
    kernel: ClassVar[Kernel]

    def __init__(self, features: int) -> None:
        self.features = features

    def make_pattern(self) -> Pattern:
        return Pattern.diagonal(self.features)

    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Array], values: Array
    ) -> None:
        device.launch(self.kernel, saved["output"], values, self.features, values.shape[1])

"""Transposed Jacobians that are a whole diagonal: of elementwise operators and of batch normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.raw_kernels.elementwise import dropout_fill, relu_fill, slope_fill
from bppsa_cupy.raw_kernels.kernel import Kernel


class DiagonalJacobian(TransposedJacobian):
    """diag(f'(x)) of `features` elements, as a function of y = f(x): `saved["output"]`, (B, ...).

    A subclass names its `kernel`, which takes (output, values, features, batch), and its `source` where that
    is another saved array.
    """

    depends_on = "sample"
    kernel: ClassVar[Kernel]
    source = "output"

    def __init__(self, features: int) -> None:
        self.features = features

    def make_pattern(self) -> Pattern:
        return Pattern.diagonal(self.features)

    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Any], values: Array
    ) -> None:
        device.launch(self.kernel, saved[self.source], values, self.features, values.shape[1])


class ReLUJacobian(DiagonalJacobian):
    """1 where the output is not 0, else a stored 0 (paper, algorithms 5 to 7)."""

    kernel = relu_fill


class ActivationJacobian(DiagonalJacobian):
    """f'(x) of the input x: `saved["slope"]`, (B, ...)."""

    kernel, source = slope_fill, "slope"


class DropoutJacobian(DiagonalJacobian):
    """1 / (1 - p) where an element was kept, else a stored 0; 1 in evaluation mode.

    `saved["kept"]` (B, ...) holds 1 or 0, or is None in evaluation mode; `saved["scale"]` is 1 / (1 - p).
    """

    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Any], values: Array
    ) -> None:
        if saved["kept"] is None:
            values[...] = 1
            return
        device.launch(dropout_fill, saved["kept"], values, self.features, values.shape[1], saved["scale"])


class BatchNormJacobian(TransposedJacobian):
    """γ/σ of the element's channel, by fixed statistics, which `saved["scale"]` (channels,) holds."""

    depends_on = "parameters"

    def __init__(self, channels: int, positions: int) -> None:
        self.channels, self.positions = channels, positions

    def make_pattern(self) -> Pattern:
        return Pattern.diagonal(self.channels * self.positions)

    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Array], values: Array
    ) -> None:
        values.reshape(self.channels, self.positions)[...] = saved["scale"][:, None]

"""Transposed Jacobians whose values are weights: a map from the pattern's entries to the weights."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.raw_kernels.gather_fill import KERNEL


class WeightJacobian(TransposedJacobian):
    """A Jacobian linear in its input: entry e shows `weight.reshape(-1)[map[e]]`, for every sample."""

    depends_on = "parameters"

    def __init__(self) -> None:
        self._uploaded: dict[Device, Array] = {}

    @abc.abstractmethod
    def make_entries(self) -> tuple[Pattern, np.ndarray]:
        """The pattern, and the (nnz,) position in the flattened weight that each entry shows."""

    @cached_property
    def entries(self) -> tuple[Pattern, np.ndarray]:
        return self.make_entries()

    def make_pattern(self) -> Pattern:
        return self.entries[0]

    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Array], values: Array
    ) -> None:
        if device not in self._uploaded:
            self._uploaded[device] = device.upload_index(self.entries[1].astype(np.int32, copy=False))
        weight = parameters["weight"]
        device.launch(KERNEL, weight, self._uploaded[device], values, weight.size, values.size)

"""Transposed Jacobians whose values are weights: a map from the pattern's entries to the weights."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.raw_kernels.gathers import gather_fill


class WeightJacobian(TransposedJacobian):
    """A Jacobian linear in its input: entry e shows `weight.reshape(-1)[map[e]]`, for every sample.

    Attributes
    ----------
    mask : array or None
        Mask of the weight's shape, or None; `fill` takes a weight of this shape, or its kept values alone.
    """

    depends_on = "parameters"

    mask: np.ndarray | None

    def __init__(self) -> None:
        self._uploaded: dict[tuple[Device, bool], Array] = {}

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
        weight = parameters["weight"]
        listed = self.mask is not None and weight.ndim < self.mask.ndim  # holds the remaining weights alone
        key = device, listed
        if key not in self._uploaded:
            positions = self.entries[1]
            if listed:
                positions = np.cumsum(np.asarray(self.mask, bool))[positions] - 1
            self._uploaded[key] = device.upload_index(positions.astype(np.int32, copy=False))
        device.launch(gather_fill, weight, self._uploaded[key], values, weight.size, values.size)

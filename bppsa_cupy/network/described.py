"""What a network says of its architecture."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from bppsa_cupy.layers import Layer
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.summary import Summary, summarize
from bppsa_cupy.plan import Chain


class Described(abc.ABC):
    """Something with an `architecture`: each of these is what that says (see there)."""

    @property
    @abc.abstractmethod
    def architecture(self) -> Architecture:
        """The layers with their masks, their shapes and Jacobians."""

    dtype: np.dtype

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.architecture.layers

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.architecture.input_shape

    @property
    def output_shape(self) -> tuple[int, ...]:
        return self.architecture.output_shape

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return self.architecture.shapes

    @property
    def jacobians(self) -> tuple[Any, ...]:
        return self.architecture.jacobians

    @property
    def masks(self) -> dict[str, np.ndarray]:
        return self.architecture.masks

    @property
    def needs_plan(self) -> bool:
        return self.architecture.needs_plan

    @property
    def fingerprint(self) -> str:
        return self.architecture.fingerprint

    def describe(self) -> dict[str, Any]:
        return self.architecture.describe()

    def summary(self) -> Summary:
        """Every layer's shapes, parameters and Jacobian; as text, `print(net.summary())`, a table of at most
        100 columns. Jacobians' patterns that were not asked for yet are made: of a VGG-11 in some seconds."""
        return summarize(self.architecture, self.dtype)

    def chains(self) -> tuple[Chain, ...]:
        return self.architecture.chains()

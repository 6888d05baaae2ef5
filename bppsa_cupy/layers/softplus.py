"""Softplus."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.arguments import as_finite
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.activation import Activation
from bppsa_cupy.raw_kernels.elementwise import softplus_forward


class Softplus(Activation):
    """y = log(1 + e^(beta x)) / beta, and x where beta x is above `threshold`; any shape.

    Raises ShapeError for a beta of 0, and arguments that are no finite numbers.
    """

    kernel = softplus_forward

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta = as_finite("Softplus", "beta", beta)
        self.threshold = as_finite("Softplus", "threshold", threshold)
        if self.beta == 0:
            raise ShapeError("Softplus got beta=0: it is divided by, so it must not be 0")

    def config(self) -> dict[str, Any]:
        return {"beta": self.beta, "threshold": self.threshold}

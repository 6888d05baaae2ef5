"""LeakyReLU."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.arguments import as_finite
from bppsa_cupy.layers.activation import Activation
from bppsa_cupy.raw_kernels.elementwise import leaky_relu_forward


class LeakyReLU(Activation):
    """y = x above 0, else negative_slope x (Maas et al. 2013); any shape. The derivative at 0 is
    negative_slope, as PyTorch's. Raises ShapeError for a slope that is no finite number."""

    kernel = leaky_relu_forward

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = as_finite("LeakyReLU", "negative_slope", negative_slope)

    def config(self) -> dict[str, Any]:
        return {"negative_slope": self.negative_slope}

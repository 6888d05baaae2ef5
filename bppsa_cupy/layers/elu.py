"""ELU."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.arguments import as_finite
from bppsa_cupy.layers.activation import Activation
from bppsa_cupy.raw_kernels.elementwise import elu_forward


class ELU(Activation):
    """y = x above 0, else alpha (e^x - 1) (Clevert et al. 2016); any shape. The derivative at 0 is alpha,
    as PyTorch's. Raises ShapeError for an alpha that is no finite number."""

    kernel = elu_forward

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = as_finite("ELU", "alpha", alpha)

    def config(self) -> dict[str, Any]:
        return {"alpha": self.alpha}

"""GELU."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.arguments import is_one_of
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.activation import Activation
from bppsa_cupy.raw_kernels.elementwise import gelu_forward

#: PyTorch's names: the normal distribution itself, and by tanh.
FORMS = ("none", "tanh")


class GELU(Activation):
    """y = x F(x), F being the normal distribution's function (Hendrycks and Gimpel 2016); any shape.

    approximate  "none", or "tanh": F(x) = (1 + tanh(sqrt(2 / π) (x + 0.044715 x³))) / 2
    Raises ShapeError for another word.
    """

    kernel = gelu_forward

    def __init__(self, approximate: str = "none") -> None:
        if not is_one_of(approximate, FORMS):
            raise ShapeError(f"GELU got approximate={approximate!r}: it takes 'none' or 'tanh'")
        self.approximate = approximate

    def config(self) -> dict[str, Any]:
        return {"approximate": self.approximate}

    def scalars(self) -> tuple[float, ...]:
        return (FORMS.index(self.approximate),)

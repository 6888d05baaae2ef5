"""The functions of cells on tensors, by the names that the texts of twins have them by."""

from __future__ import annotations

from typing import Any

import torch
from torch import cos as cosine
from torch import exp as exponential
from torch import expm1, sigmoid, sqrt, tanh
from torch import log as logarithm
from torch import sin as sine
from torch import where as select

__all__ = [
    "bounded_root",
    "cosine",
    "expm1",
    "exponential",
    "logarithm",
    "magnitude",
    "multiply_add",
    "number",
    "select",
    "sigmoid",
    "sine",
    "sqrt",
    "tanh",
]

magnitude = torch.abs


def bounded_root(x: torch.Tensor) -> torch.Tensor:
    """The square root of x, whose derivative is 1000 where it were more."""
    least = 2.5e-7
    small = x.detach().sqrt() + 1000 * (x - x.detach())
    return torch.where(x > least, x.clamp(min=least).sqrt(), small)


def number(like: torch.Tensor, value: float) -> float:
    """A number, which takes the tensors' dtype."""
    return value


def multiply_add(x: Any, y: Any, z: Any) -> Any:
    """x y + z"""
    return x * y + z

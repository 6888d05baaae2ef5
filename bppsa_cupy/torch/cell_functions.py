"""The functions of cells on tensors, by the names that the texts of twins have them by."""

from __future__ import annotations

from typing import Any

import torch

sigmoid, tanh, sqrt = torch.sigmoid, torch.tanh, torch.sqrt
exponential, expm1, logarithm = torch.exp, torch.expm1, torch.log
sine, cosine, magnitude, select = torch.sin, torch.cos, torch.abs, torch.where


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

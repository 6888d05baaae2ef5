"""Functions for the steps of cells, beside SymPy's own: SymPy is imported where one is called."""

from __future__ import annotations

from typing import Any


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^-x); its derivative is taken as s (1 - s) of its value s."""
    from bppsa_cupy.cells.symbolic import Sigmoid

    return Sigmoid(x)


def tanh(x: Any) -> Any:
    """SymPy's tanh."""
    import sympy

    return sympy.tanh(x)


def bounded_sqrt(x: Any) -> Any:
    """The square root of x, whose derivative counts as 1000 where it is more."""
    from bppsa_cupy.cells.symbolic import BoundedRoot

    return BoundedRoot(x)


def exp(x: Any) -> Any:
    """SymPy's exp."""
    import sympy

    return sympy.exp(x)


def expm1(x: Any) -> Any:
    """e^x - 1, which does not cancel near 0."""
    from bppsa_cupy.cells.symbolic import ExponentialMinusOne

    return ExponentialMinusOne(x)


def relu(x: Any) -> Any:
    """max(x, 0), whose derivative at 0 is 0."""
    import sympy

    return sympy.Max(x, 0)

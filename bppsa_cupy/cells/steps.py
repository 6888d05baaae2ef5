"""Functions for the steps of cells, and the steps of the built-in cells."""

from __future__ import annotations

from typing import Any


def sigmoid(x: Any) -> Any:
    """Logistic sigmoid 1 / (1 + e^-x), for the steps of cells.

    Parameters
    ----------
    x : SymPy expression
        The argument.

    Returns
    -------
    SymPy expression

    Examples
    --------
    >>> import sympy, bppsa_cupy as bp
    >>> bp.cells.sigmoid(sympy.Symbol("x"))
    Sigmoid(x)
    """
    from bppsa_cupy.cells.symbolic import Sigmoid

    return Sigmoid(x)


def tanh(x: Any) -> Any:
    """Hyperbolic tangent, for the steps of cells.

    Parameters
    ----------
    x : SymPy expression
        The argument.

    Returns
    -------
    SymPy expression

    Examples
    --------
    >>> import sympy, bppsa_cupy as bp
    >>> bp.cells.tanh(sympy.Symbol("x"))
    tanh(x)
    """
    import sympy

    return sympy.tanh(x)


def relu(x: Any) -> Any:
    """max(x, 0), for the steps of cells; the derivative at 0 is 0.

    Parameters
    ----------
    x : SymPy expression
        The argument.

    Returns
    -------
    SymPy expression

    Examples
    --------
    >>> import sympy, bppsa_cupy as bp
    >>> bp.cells.relu(sympy.Symbol("x"))
    Max(0, x)
    """
    import sympy

    return sympy.Max(x, 0)


def rnn_tanh(x: Any, u: Any, s: Any, p: Any) -> Any:
    """h' = tanh(W_ih x + W_hh h) (Elman 1990)."""
    return {"h": tanh(x.h + u.h)}


def rnn_relu(x: Any, u: Any, s: Any, p: Any) -> Any:
    """h' = max(W_ih x + W_hh h, 0)."""
    return {"h": relu(x.h + u.h)}


def gru(x: Any, u: Any, s: Any, p: Any) -> Any:
    """PyTorch's GRU (Cho et al. 2014, with the reset gate after the recurrent product)."""
    r, z = sigmoid(x.r + u.r), sigmoid(x.z + u.z)
    n = tanh(x.n + r * u.n)
    return {"h": n + z * (s.h - n)}


def lstm(x: Any, u: Any, s: Any, p: Any) -> Any:
    """Long short-term memory with a forget gate (Hochreiter & Schmidhuber 1997, Gers et al. 2000)."""
    i, f, o = sigmoid(x.i + u.i), sigmoid(x.f + u.f), sigmoid(x.o + u.o)
    c = f * s.c + i * tanh(x.g + u.g)
    return {"h": o * tanh(c), "c": c}


#: Gates, states and step of every built-in cell. Gates have the order of PyTorch's weights.
BUILT_IN: dict[str, tuple[tuple[str, ...], tuple[str, ...], Any]] = {
    "rnn_tanh": (("h",), ("h",), rnn_tanh),
    "rnn_relu": (("h",), ("h",), rnn_relu),
    "gru": (("r", "z", "n"), ("h",), gru),
    "lstm": (("i", "f", "g", "o"), ("h", "c"), lstm),
}

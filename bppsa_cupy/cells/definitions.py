"""The built-in cells. Their functions lie in `raw_kernels/cells/`, so that none of them needs SymPy to run.

`s.h` is the state before a step, `x` and `u` are W_ih x + b_ih and W_hh h + b_hh by gate.
"""

from __future__ import annotations

from typing import Any

from bppsa_cupy.cells.definition import Definition


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


def ctrnn(x: Any, u: Any, s: Any, p: Any) -> Any:
    """Leaky units: h' = (1 - α) h + α tanh(W_ih x + W_hh h), α learnt, one a unit; Euler's step of a
    continuous-time network (Funahashi & Nakamura 1993)."""
    return {"h": s.h + p.alpha * (tanh(x.h + u.h) - s.h)}


def mgu(x: Any, u: Any, s: Any, p: Any) -> Any:
    """The minimal gated unit (Zhou et al. 2016), whose forget gate is reset gate too. Theirs multiplies h
    before the product W (f h), which couples units; here, as in PyTorch's GRU, it multiplies W h."""
    f = sigmoid(x.f + u.f)
    n = tanh(x.n + f * u.n)
    return {"h": s.h + f * (n - s.h)}


def ugrnn(x: Any, u: Any, s: Any, p: Any) -> Any:
    """The update-gate network: h' = g h + (1 - g) tanh(W_ih x + W_hh h) (Collins et al. 2017)."""
    g, c = sigmoid(x.g + u.g), tanh(x.c + u.c)
    return {"h": c + g * (s.h - c)}


def peephole_lstm(x: Any, u: Any, s: Any, p: Any) -> Any:
    """An LSTM whose gates see the cell, i and f the former one and o the new one, each through one weight a
    unit (Gers & Schmidhuber 2000)."""
    i, f = sigmoid(x.i + u.i + p.ci * s.c), sigmoid(x.f + u.f + p.cf * s.c)
    c = f * s.c + i * tanh(x.g + u.g)
    return {"h": sigmoid(x.o + u.o + p.co * c) * tanh(c), "c": c}


def _table(*definitions: Definition) -> dict[str, Definition]:
    return {definition.name: definition for definition in definitions}


#: Every built-in cell by name; gates in the order of PyTorch's weights where it has the cell.
DEFINITIONS = _table(
    Definition("rnn_tanh", ("h",), ("h",), (), rnn_tanh),
    Definition("rnn_relu", ("h",), ("h",), (), rnn_relu),
    Definition("gru", ("r", "z", "n"), ("h",), (), gru),
    Definition("lstm", ("i", "f", "g", "o"), ("h", "c"), (), lstm),
    Definition("ctrnn", ("h",), ("h",), ("alpha",), ctrnn),
    Definition("mgu", ("f", "n"), ("h",), (), mgu),
    Definition("ugrnn", ("g", "c"), ("h",), (), ugrnn),
    Definition("peephole_lstm", ("i", "f", "g", "o"), ("h", "c"), ("ci", "cf", "co"), peephole_lstm),
)

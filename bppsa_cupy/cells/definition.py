"""The names and the step of a recurrent cell, and the built-in cells."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bppsa_cupy.arguments import as_list
from bppsa_cupy.errors import CellError

#: (x, u, s, p), each with an attribute a name -> the new states, by name or in order.
Step = Callable[[Any, Any, Any, Any], Mapping[str, Any] | Sequence[Any]]


@dataclass(frozen=True)
class Definition:
    """Names and step of a cell, as `Cell` accepts them; raises CellError for wrong names."""

    name: str
    gates: tuple[str, ...]
    states: tuple[str, ...]
    parameters: tuple[str, ...]
    step: Step
    recurrent: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _check_identifier("a cell's name", self.name)
        for kind in ("gates", "states", "parameters"):
            names = getattr(self, kind)
            for name in names:
                _check_identifier(f"cell {self.name!r}: one of its {kind}", name)
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise CellError(
                    f"cell {self.name!r} has {kind} {_listed(names)}, where {twice[0]!r} occurs twice: use "
                    "different names"
                )
            if not names and kind != "parameters":
                raise CellError(f"cell {self.name!r} has no {kind}: name at least one, such as {kind}=['h']")
        for name in self.recurrent or ():
            if name not in self.gates:
                raise CellError(
                    f"cell {self.name!r} has recurrent={list(self.recurrent or ())}, but its gates are "
                    f"{', '.join(self.gates)}: use only names of these gates, or omit recurrent to use all"
                )

    @property
    def recurrent_gates(self) -> tuple[int, ...]:
        """Indices of the gates that have rows in W_hh."""
        named = self.gates if self.recurrent is None else self.recurrent
        return tuple(place for place, gate in enumerate(self.gates) if gate in named)


def names_of(kind: str, names: Iterable[str]) -> tuple[str, ...]:
    """`names` as a tuple. Raises CellError for a string."""
    if isinstance(names, str):
        raise CellError(f"{kind} is the string {names!r}: pass a list of names, such as {kind}=[{names!r}]")
    takes = f"a list of names: {kind}=['h']"
    return tuple(as_list("a cell", kind, names, takes, error=CellError))


def _check_identifier(subject: str, name: object) -> None:
    if not (isinstance(name, str) and name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
        raise CellError(f"{subject} is {name!r}: pass an identifier that consists of letters, digits and _")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


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


def _table(*definitions: Definition) -> dict[str, Definition]:
    return {definition.name: definition for definition in definitions}


#: Every built-in cell by name; gates in the order of PyTorch's weights where it has the cell.
DEFINITIONS = _table(
    Definition("rnn_tanh", ("h",), ("h",), (), rnn_tanh),
    Definition("rnn_relu", ("h",), ("h",), (), rnn_relu),
    Definition("gru", ("r", "z", "n"), ("h",), (), gru),
    Definition("lstm", ("i", "f", "g", "o"), ("h", "c"), (), lstm),
)

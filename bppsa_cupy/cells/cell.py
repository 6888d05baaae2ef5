"""Recurrent cells of one's own, the functions of their steps, and the built-in ones."""

from __future__ import annotations

import hashlib
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bppsa_cupy.arguments import as_list, is_one_of
from bppsa_cupy.errors import CellError
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.linear.form import LinearForm


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
    from bppsa_cupy.cells.writing import Sigmoid

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

#: (x, u, s, p), each with an attribute a name -> the new states, by name or in order.
Step = Callable[[Any, Any, Any, Any], Mapping[str, Any] | Sequence[Any]]


class Cell:
    """A recurrent cell, defined by the step of one unit.

    Parameters
    ----------
    name : str
        An identifier.
    gates : sequence of str
        Names of the gates. Each gate has one row per unit in W_ih, W_hh and both biases.
    states : sequence of str
        Names of the states. The first state is the output, and W_hh multiplies it.
    step : callable
        Called as ``step(x, u, s, p)``. Returns the new states of one unit as SymPy expressions, in a dict by
        name or in order. For a gate g, x.g is its value of W_ih x + b_ih, and u.g its value of W_hh h + b_hh.
        For a state c, s.c is its previous value. For a parameter q, p.q is its value.
    parameters : sequence of str, default: ()
        Names of learned values, one per unit, besides weights and biases.
    recurrent : sequence of str, optional
        Gates that have rows in W_hh, so that the step may read u.g. All gates by default.

    Attributes
    ----------
    name, gates, states, parameters, step
        The arguments; names as tuples.
    recurrent_gates : tuple of int
        Indices of the gates that have rows in W_hh.

    Raises
    ------
    CellError
        If a name is invalid or unknown, the step does not set a state, an expression is not supported, a cell
        without recurrent gates is not linear, or SymPy is not installed.

    Notes
    -----
    A step may use numbers, `+ - * / **`, SymPy's tanh, exp, log, sqrt, sin, cos, sinh, cosh, Abs, sign, Max,
    Min and Piecewise, and the functions of `bp.cells`. Gradients, Jacobians and kernels are derived from it.
    Only the constructor needs SymPy; `built_in` does not.

    With recurrent=[] there is no W_hh, and the cell must be *linear*: its step reads one state c and computes
    c' = a c + b. The output is c, or a state listed before c that is a function of x, p and the new c.
    The forward and backward passes over time are then exact scans.

    Examples
    --------
    >>> import sympy, bppsa_cupy as bp
    >>> def step(x, u, s, p):
    ...     return {"h": 0.9 * s.h + 0.1 * sympy.tanh(x.h + u.h)}
    >>> cell = bp.Cell("leaky", gates=["h"], states=["h"], step=step)
    >>> bp.CellLayer(cell, 3, 5).output_shape((7, 3))
    (7, 5)
    """

    #: Of a linear cell; None of others.
    linear_form: LinearForm | None = None
    #: The place of the state that a layer returns.
    output = 0

    def __init__(
        self,
        name: str,
        *,
        gates: Iterable[str],
        states: Iterable[str],
        parameters: Iterable[str] = (),
        recurrent: Iterable[str] | None = None,
        step: Step,
    ) -> None:
        self.name, self.step = name, step
        _check_identifier("a cell's name", name)
        self.gates, self.states, self.parameters = (
            _checked_names(name, kind, names)
            for kind, names in (("gates", gates), ("states", states), ("parameters", parameters))
        )
        named = self.gates if recurrent is None else _names_of("recurrent", recurrent)
        for gate in named:
            if not isinstance(gate, str) or gate not in self.gates:
                raise CellError(
                    f"cell {name!r} has recurrent={list(named)}, but its gates are {', '.join(self.gates)}: "
                    "use only names of these gates, or omit recurrent to use all"
                )
        self.recurrent_gates = tuple(place for place, gate in enumerate(self.gates) if gate in named)
        try:
            from bppsa_cupy.cells.form import form_of, linear_form
        except ModuleNotFoundError as error:
            raise CellError(
                f"cell {name!r} needs SymPy, which is not installed: pip install sympy"
            ) from error
        if self.recurrent_gates:
            self._form = form_of(self)
        else:
            self.linear_form = linear_form(self)

    @property
    def form(self) -> CellForm:
        """The symbolic form from which kernels are generated.

        Raises CellError for a linear cell: use its attribute `linear_form` instead.
        """
        if self.linear_form is not None:
            raise CellError(f"cell {self.name!r} is linear, so it has no form: use its linear_form")
        return self._form

    @classmethod
    def built_in(cls, name: str) -> Cell:
        """Return a built-in cell. SymPy is not needed.

        Parameters
        ----------
        name : {"rnn_tanh", "rnn_relu", "gru", "lstm"}
            Name of the cell.

        Examples
        --------
        >>> import bppsa_cupy as bp
        >>> bp.Cell.built_in("gru").gates
        ('r', 'z', 'n')
        """
        if not is_one_of(name, BUILT_IN):
            raise CellError(f"there is no built-in cell {name!r}: pass one of {', '.join(BUILT_IN)}")
        cell = cls.__new__(cls)
        cell.name, cell.parameters, cell._form = name, (), FORMS[name]
        cell.gates, cell.states, cell.step = BUILT_IN[name]
        cell.recurrent_gates = tuple(range(len(cell.gates)))
        return cell

    @property
    def recurrent(self) -> tuple[str, ...]:
        """Names of the gates that have rows in W_hh."""
        return tuple(self.gates[gate] for gate in self.recurrent_gates)

    @property
    def digest(self) -> str:
        """SHA-256 of the cell's definition. Equal cells have equal digests in every process."""
        form = self._form if self.linear_form is None else self.linear_form
        return hashlib.sha256(form.cuda.encode()).hexdigest()

    @property
    def is_linear(self) -> bool:
        """Whether the cell has one affine state, c' = a c + b, and no recurrent gates."""
        return self.linear_form is not None

    def __deepcopy__(self, memo: Any) -> Cell:
        """A cell never changes: it is its own copy."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles hold a built-in cell by name, another by its names and its step, which pickle must find."""
        if self.name in BUILT_IN and self.step is BUILT_IN[self.name][2]:
            return Cell.built_in, (self.name,)
        return _defined, (self.name, self.gates, self.states, self.parameters, self.recurrent, self.step)

    def __repr__(self) -> str:
        parts = [f"{kind}={list(getattr(self, kind))}" for kind in ("gates", "states", "parameters")]
        some = [f"recurrent={list(self.recurrent)}"] if self.recurrent != self.gates else []
        return f"Cell({self.name!r}, {', '.join(parts + some)})"


def _defined(name: str, gates: Any, states: Any, parameters: Any, recurrent: Any, step: Step) -> Cell:
    return Cell(name, gates=gates, states=states, parameters=parameters, recurrent=recurrent, step=step)


def _names_of(kind: str, names: Iterable[str]) -> tuple[str, ...]:
    """`names` as a tuple. Raises CellError for a string."""
    if isinstance(names, str):
        raise CellError(f"{kind} is the string {names!r}: pass a list of names, such as {kind}=[{names!r}]")
    takes = f"a list of names: {kind}=['h']"
    return tuple(as_list("a cell", kind, names, takes, error=CellError))


def _checked_names(cell: str, kind: str, values: Iterable[str]) -> tuple[str, ...]:
    """Names of gates, states or parameters: identifiers, none of them twice."""
    names = _names_of(kind, values)
    for name in names:
        _check_identifier(f"cell {cell!r}: one of its {kind}", name)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CellError(
            f"cell {cell!r} has {kind} {', '.join(map(repr, names))}, where {twice[0]!r} occurs twice: use "
            "different names"
        )
    if not names and kind != "parameters":
        raise CellError(f"cell {cell!r} has no {kind}: name at least one, such as {kind}=['h']")
    return names


def _check_identifier(subject: str, name: object) -> None:
    if not (isinstance(name, str) and name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
        raise CellError(f"{subject} is {name!r}: pass an identifier that consists of letters, digits and _")

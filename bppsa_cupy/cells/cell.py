"""Recurrent cells of one's own, and the built-in ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from bppsa_cupy.arguments import is_one_of
from bppsa_cupy.cells.definition import DEFINITIONS, Definition, Step, names_of
from bppsa_cupy.errors import CellError
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.linear.form import LinearForm


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

    definition: Definition
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
        gates = names_of("gates", gates)
        definition = Definition(
            name,
            gates,
            names_of("states", states),
            names_of("parameters", parameters),
            step,
            _in_order(gates, recurrent),
        )
        try:
            from bppsa_cupy.cells.form import form_of, linear_form
        except ModuleNotFoundError as error:
            raise CellError(
                f"cell {name!r} needs SymPy, which is not installed: pip install sympy"
            ) from error
        self.definition = definition
        if definition.recurrent_gates:
            self._form = form_of(definition, self.output)
        else:
            self.linear_form = linear_form(definition)

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
        cell = cls.__new__(cls)
        if is_one_of(name, DEFINITIONS):
            cell.definition, cell._form = DEFINITIONS[name], FORMS[name]
        else:
            known = ", ".join(DEFINITIONS)
            raise CellError(f"there is no built-in cell {name!r}: pass one of {known}")
        return cell

    @property
    def name(self) -> str:
        """The name of the cell."""
        return self.definition.name

    @property
    def gates(self) -> tuple[str, ...]:
        """Names of the gates."""
        return self.definition.gates

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the states."""
        return self.definition.states

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the learned values, one per unit."""
        return self.definition.parameters

    @property
    def recurrent(self) -> tuple[str, ...]:
        """Names of the gates that have rows in W_hh."""
        return tuple(self.gates[gate] for gate in self.definition.recurrent_gates)

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
        if self.definition == DEFINITIONS.get(self.name):
            return Cell.built_in, (self.name,)
        names = self.name, self.gates, self.states, self.parameters
        return _defined, (*names, self.definition.recurrent, self.definition.step)

    def __repr__(self) -> str:
        parts = [f"{kind}={list(getattr(self, kind))}" for kind in ("gates", "states", "parameters")]
        some = [f"recurrent={list(self.recurrent)}"] if self.definition.recurrent is not None else []
        return f"Cell({self.name!r}, {', '.join(parts + some)})"


def _in_order(gates: tuple[str, ...], recurrent: Iterable[str] | None) -> tuple[str, ...] | None:
    """The recurrent gates in the order of all; None for all of them. Unknown ones stay."""
    if recurrent is None:
        return None
    named = names_of("recurrent", recurrent)
    for name in named:
        if not isinstance(name, str):
            raise CellError(f"recurrent contains {name!r}: pass a list of names, such as recurrent=['h']")
    ordered = tuple(gate for gate in gates if gate in named)
    unknown = tuple(name for name in named if name not in gates)
    return None if ordered == gates and not unknown else ordered + unknown


def _defined(name: str, gates: Any, states: Any, parameters: Any, recurrent: Any, step: Step) -> Cell:
    return Cell(name, gates=gates, states=states, parameters=parameters, recurrent=recurrent, step=step)

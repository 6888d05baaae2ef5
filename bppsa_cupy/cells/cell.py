"""Recurrent cells of one's own, and the built-in ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from bppsa_cupy.arguments import is_one_of
from bppsa_cupy.cells.definition import Definition, Step, names_of
from bppsa_cupy.cells.definitions import DEFINITIONS
from bppsa_cupy.errors import CellError
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.linear.form import LinearForm


class Cell:
    """A recurrent cell, defined by what one of its units does at a step.

    name        an identifier
    gates       of each, a row of W_ih, W_hh and both biases a unit
    states      the first is put out, and is what W_hh multiplies
    parameters  learnt numbers a unit, beside the weights
    recurrent   gates that have rows in W_hh: all of them by default, some, or none, []
    step        (x, u, s, p) -> the new states, by name or in order, as SymPy expressions. x.g is the
                projected input W_ih x + b_ih of gate g, u.g its recurrent sum W_hh h + b_hh, s.c a former
                state, p.q a parameter; all of one unit

        alpha = 0.1
        cell = bp.Cell("leaky", gates=["h"], states=["h"],
                       step=lambda x, u, s, p: {"h": (1 - alpha) * s.h + alpha * sympy.tanh(x.h + u.h)})

    A gate that is not recurrent reads the input alone, and has no u. Without any recurrent gate there is no
    W_hh: a unit sees the input and its own former states, and a step's Jacobian is a block of P x P for each
    unit, P states. Where no derivative by a former state holds one, the step is affine, s' = A s + b with A
    and b of x and p, and passes over time are exact scans both ways; else the way forward is serial or
    Newton's, and the way back such a scan.

    One affine state, c' = a c + b, makes a *linear* cell, whose scan takes a product a unit. It may put out
    another state before that one, of x, p and the new c:

        gate = bp.cells.sigmoid
        cell = bp.Cell("gated", gates=["c", "f", "o"], states=["h", "c"], recurrent=[],
                       step=lambda x, u, s, p: {
                           "c": (c := s.c * gate(x.f) + x.c * (1 - gate(x.f))), "h": gate(x.o) * c})

    A step is made of numbers, + - * / **, SymPy's tanh, exp, log, sqrt, sin, cos, sinh, cosh, Abs, sign, Max,
    Min and Piecewise, and `bp.cells.sigmoid`. Its derivatives, what the forward pass keeps for them, and the
    kernels' texts follow from it: `form`, or of a linear cell `linear_form`. SymPy is needed to define a
    cell, not to run a built-in one.

    Raises CellError, quoting the expression, where a name is wrong or unknown, a state is never set, or the
    step is not elementwise or without recurrent gates reads no former state.
    """

    definition: Definition
    #: Of a linear cell; None of others.
    linear_form: LinearForm | None = None

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
                f"cell {name!r} is defined by its step, which takes SymPy: pip install sympy"
            ) from error
        self.definition = definition
        if not definition.recurrent_gates:
            self.linear_form = linear_form(definition)
            if self.linear_form is not None:
                return
        self._form = form_of(definition)

    @property
    def form(self) -> CellForm:
        """What kernels and twins are made of. Raises CellError of a linear cell, whose is `linear_form`."""
        if self.linear_form is not None:
            raise CellError(
                f"cell {self.name!r} is a linear one, of one state that goes on by a number: this takes "
                "others; bp.CellLayer takes both"
            )
        return self._form

    @classmethod
    def built_in(cls, name: str) -> Cell:
        """A built-in cell, which needs no SymPy: rnn_tanh, rnn_relu, gru, lstm, ctrnn, mgu, ugrnn or
        peephole_lstm."""
        cell = cls.__new__(cls)
        if is_one_of(name, DEFINITIONS):
            cell.definition, cell._form = DEFINITIONS[name], FORMS[name]
        else:
            known = ", ".join(DEFINITIONS)
            raise CellError(f"there is no built-in cell {name!r}: it is one of {known}")
        return cell

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def gates(self) -> tuple[str, ...]:
        return self.definition.gates

    @property
    def states(self) -> tuple[str, ...]:
        return self.definition.states

    @property
    def parameters(self) -> tuple[str, ...]:
        return self.definition.parameters

    @property
    def recurrent(self) -> tuple[str, ...]:
        """The gates that have rows in W_hh."""
        return tuple(self.gates[gate] for gate in self.definition.recurrent_gates)

    @property
    def digest(self) -> str:
        """SHA-256 of the cell's text: equal cells have equal ones, in every process."""
        form = self._form if self.linear_form is None else self.linear_form
        return hashlib.sha256(form.cuda.encode()).hexdigest()

    @property
    def is_linear(self) -> bool:
        """Whether it carries one state, by c' = a c + b, and has no recurrent gates."""
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
            raise CellError(f"recurrent names {name!r}: it takes a list of names: recurrent=['h']")
    own = tuple(gate for gate in gates if gate in named)
    unknown = tuple(name for name in named if name not in gates)
    return None if own == gates and not unknown else own + unknown


def _defined(name: str, gates: Any, states: Any, parameters: Any, recurrent: Any, step: Step) -> Cell:
    return Cell(name, gates=gates, states=states, parameters=parameters, recurrent=recurrent, step=step)

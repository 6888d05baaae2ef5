"""Recurrent cells of one's own, and the built-in ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import partial
from typing import Any

from bppsa_cupy.arguments import as_number, is_one_of
from bppsa_cupy.cells.definition import Definition, Step, names_of, need_sympy
from bppsa_cupy.cells.definitions import DEFINITIONS
from bppsa_cupy.cells.probe import check_finite
from bppsa_cupy.errors import CellError
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm


class Cell:
    """A recurrent cell, defined by what one of its units does at a step.

    name        an identifier
    gates       of each, a row of W_ih, W_hh and both biases a unit
    states      the first is put out, and is what W_hh multiplies
    parameters  learnt numbers a unit, beside the weights
    step        (x, u, s, p) -> the new states, by name or in order, as SymPy expressions. x.g is the
                projected input W_ih x + b_ih of gate g, u.g its recurrent sum W_hh h + b_hh, s.c a former
                state, p.q a parameter; all of one unit

        alpha = 0.1
        cell = bp.Cell("leaky", gates=["h"], states=["h"],
                       step=lambda x, u, s, p: {"h": (1 - alpha) * s.h + alpha * sympy.tanh(x.h + u.h)})

    A step is made of numbers, + - * / **, SymPy's tanh, exp, log, sqrt, sin, cos, sinh, cosh, Abs, sign, Max,
    Min and Piecewise, and `bp.cells.sigmoid`. Its derivatives, what the forward pass keeps for them, and the
    kernels' texts follow from it: `form`. SymPy is needed to define a cell, not to run a built-in one.

    Raises CellError, quoting the expression, where a name is wrong or unknown, a state is never set, the step
    is not elementwise, or a value or derivative is not finite where a walk starts and around there.
    """

    definition: Definition
    form: CellForm

    def __init__(
        self,
        name: str,
        *,
        gates: Iterable[str],
        states: Iterable[str],
        parameters: Iterable[str] = (),
        step: Step,
    ) -> None:
        definition = Definition(
            name,
            names_of("gates", gates),
            names_of("states", states),
            names_of("parameters", parameters),
            step,
        )
        need_sympy(f"cell {name!r} is defined by its step, which")
        from bppsa_cupy.cells.form import form_of, write

        self.definition, self.form = definition, form_of(write(definition))
        check_finite(definition, self.form)

    @classmethod
    def built_in(cls, name: str) -> Cell:
        """A built-in cell, which needs no SymPy: rnn_tanh, rnn_relu, gru, lstm, ctrnn, mgu, ugrnn or
        peephole_lstm."""
        if not is_one_of(name, DEFINITIONS):
            raise CellError(f"there is no built-in cell {name!r}: it is one of {', '.join(DEFINITIONS)}")
        cell = cls.__new__(cls)
        cell.definition, cell.form = DEFINITIONS[name], FORMS[name]
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
    def digest(self) -> str:
        """SHA-256 of the cell's text: equal cells have equal ones, in every process."""
        return hashlib.sha256(self.form.cuda.encode()).hexdigest()

    def __deepcopy__(self, memo: Any) -> Cell:
        """A cell never changes: it is its own copy."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles hold a built-in cell by name, another by its names and its step, which pickle must find."""
        if DEFINITIONS.get(self.name) is self.definition:
            return Cell.built_in, (self.name,)
        return _defined, (self.name, self.gates, self.states, self.parameters, self.definition.step)

    def __repr__(self) -> str:
        parts = [f"{kind}={list(getattr(self, kind))}" for kind in ("gates", "states", "parameters")]
        return f"Cell({self.name!r}, {', '.join(parts)})"


def _defined(name: str, gates: Any, states: Any, parameters: Any, step: Step) -> Cell:
    return Cell(name, gates=gates, states=states, parameters=parameters, step=step)


def _leaky(rate: float, x: Any, u: Any, s: Any, p: Any) -> dict[str, Any]:
    """The step of leaky units of one rate."""
    from bppsa_cupy.cells.functions import tanh

    return {"h": s.h + rate * (tanh(x.h + u.h) - s.h)}


def ctrnn(alpha: float | None = None) -> Cell:
    """Leaky units, h' = (1 - α) h + α tanh(W_ih x + W_hh h): α is learnt, one a unit, or `alpha` in (0, 1].

    Raises CellError where `alpha` is outside."""
    if alpha is None:
        return Cell.built_in("ctrnn")
    takes = "a leak in (0, 1], or None to learn it"
    rate = as_number("ctrnn", "alpha", alpha, lambda a: 0 < a <= 1, takes, error=CellError)
    name = f"ctrnn_{rate!r}".replace(".", "_").replace("-", "_")
    return Cell(
        name,
        gates=["h"],
        states=["h"],
        step=partial(_leaky, rate),
    )

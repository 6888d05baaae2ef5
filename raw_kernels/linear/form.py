"""What a linear cell is to its frames: counts, and its functions in two languages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class LinearFunctions:
    """A linear cell's functions for twins, on tuples of lanes or of numbers, of one unit.

    terms      (x, p) -> (a, b): projected inputs by gate and unit parameters; factor and term of its scan
    by_inputs  (g, x, state, p) -> (by_x, by_p): from the gradients by a, b and, where it has one, the output
    output     (x, state, p) -> y, of the new state; None where the state is put out itself
    by_state   (g, x, state, p) -> by, the gradient by the state of that by y; None likewise
    """

    terms: Callable[..., Any]
    by_inputs: Callable[..., Any]
    output: Callable[..., Any] | None = None
    by_state: Callable[..., Any] | None = None


@dataclass(frozen=True)
class LinearForm:
    """One kind of linear cell, c_t = a_t c_{t-1} + b_t, a and b of the projected input and unit parameters.

    name        a C and Python identifier
    gates       rows of W_ih and of the projected input, in units of `hidden`
    parameters  learnt numbers a unit, beside the weights
    cuda        the text of `struct Cell`; `functions` the twin of it
    """

    name: str
    gates: int
    parameters: int
    cuda: str = field(repr=False)
    functions: LinearFunctions = field(repr=False)

    @property
    def has_output(self) -> bool:
        """Whether what is put out is not the state itself."""
        return self.functions.output is not None

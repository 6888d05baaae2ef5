"""What a linear cell is to its frames: counts, and its functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bppsa_cupy.raw_kernels.cell_struct import Signature, struct_text

#: Arguments and results of a linear cell's functions, in the order of `struct Cell`.
SIGNATURES = (
    Signature("terms", ("x", "p"), ("a", "b")),
    Signature("output", ("x", "state", "p"), ("y",)),
    Signature("by_state", ("g", "x", "state", "p"), ("by",)),
    Signature("by_inputs", ("g", "x", "state", "p"), ("by_x", "by_p")),
)


@dataclass(frozen=True)
class LinearFunctions:
    """A linear cell's functions, on tuples of lanes or of numbers, of one unit.

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
    """

    name: str
    gates: int
    parameters: int
    functions: LinearFunctions = field(repr=False)

    @cached_property
    def cuda(self) -> str:
        """The text of `struct Cell` in CUDA C++."""
        functions = [(getattr(self.functions, signature.name), signature) for signature in SIGNATURES]
        counts = {"gates": self.gates, "parameters": self.parameters}
        return struct_text((counts,), [pair for pair in functions if pair[0] is not None])

    @property
    def has_output(self) -> bool:
        """Whether what is put out is not the state itself."""
        return self.functions.output is not None

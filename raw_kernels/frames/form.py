"""What a recurrent cell is to the frames: counts, patterns, and its functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bppsa_cupy.raw_kernels.cell_struct import Signature, struct_text

#: Arguments and results of a cell's functions, in the order of `struct Cell`.
SIGNATURES = (
    Signature("forward", ("x", "u", "before", "p"), ("after", "saved")),
    Signature("backward", ("g", "saved", "after", "before", "p"), ("by_x", "by_u", "by_before", "by_p")),
    Signature("coefficients", ("saved", "after", "before", "p"), ("a",)),
    Signature("enter", ("a", "x"), ("x",)),
    Signature("entry", ("a", "w"), ("p",)),
    Signature("carry", ("a", "x"), ("d",)),
)


@dataclass(frozen=True)
class Functions:
    """A cell's functions, on tuples of lanes or of numbers, of one unit.

    forward       (x, u, before, p) -> (after, saved): projected inputs and recurrent sums by gate, former
                  states, unit parameters; new states and what is saved for the backward pass
    backward      (g, saved, after, before, p) -> (by_x, by_u, by_before, by_p): from the gradients by the new
                  states; by_u of the separate gates alone, by_before without what goes through W_hh
    coefficients  (saved, after, before, p) -> a, the numbers of a step's Jacobian
    enter         (a, x) -> x, the gradients by the new states as W_hh's product takes them
    entry         (a, w) -> p, what one x of each state adds to a row of W_hh's product; w are the gates'
                  weights
    carry         (a, x) -> d, what x gives each former state without W_hh
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    coefficients: Callable[..., Any]
    enter: Callable[..., Any]
    entry: Callable[..., Any]
    carry: Callable[..., Any]


@dataclass(frozen=True)
class CellForm:
    """One kind of cell as the frames take it; sizes are in units of `hidden`.

    name          a C and Python identifier
    gates         rows of W_ih, W_hh and of the projected input
    states        parts of the state: h, which is put out and which W_hh multiplies, then any others
    saved         rows that the forward pass saves for the backward pass
    parameters    learnt numbers a unit, beside the weights
    separate      gates whose recurrent sum has another gradient than their projected input
    after, before  states after and before a step that the way back reads
    coefficients  numbers of a step's Jacobian a unit
    dense, diagonal  pairs (former state, new state) of blocks of the Jacobian, through W_hh and without it; a
                  block in both is dense
    columns       that a thread of the reduction holds in registers in float32, and `tile_columns` in its tile
    recurrent     gates that have rows in W_hh, and so a recurrent sum; all of them where it is None
    """

    name: str
    gates: int
    states: int
    saved: int
    parameters: int
    separate: tuple[int, ...]
    after: tuple[int, ...]
    before: tuple[int, ...]
    coefficients: int
    dense: tuple[tuple[int, int], ...]
    diagonal: tuple[tuple[int, int], ...]
    columns: int
    tile_columns: int
    functions: Functions = field(repr=False)
    recurrent: tuple[int, ...] | None = None

    @cached_property
    def cuda(self) -> str:
        """The text of `struct Cell` in CUDA C++."""
        counts = {
            "gates": self.gates, "states": self.states, "saved": self.saved, "parameters": self.parameters,
            "separate": len(self.separate), "coefficients": self.coefficients,
        }  # fmt: skip
        bits = {
            "reads_after": self.after_bits, "reads_before": self.before_bits,
            "separate_gates": self.separate_bits, "direct": bits_of({former for former, _ in self.diagonal}),
        }  # fmt: skip
        return struct_text(
            (counts, bits), [(getattr(self.functions, signature.name), signature) for signature in SIGNATURES]
        )

    @cached_property
    def recurrent_gates(self) -> tuple[int, ...]:
        """The gates that have rows in W_hh."""
        return tuple(range(self.gates)) if self.recurrent is None else self.recurrent

    @cached_property
    def sums(self) -> int:
        """How many these are."""
        return len(self.recurrent_gates)

    @property
    def deltas(self) -> int:
        """Rows of the gradient that the way back gives a step: by the projected input; by the recurrent sums
        of the separate gates; by the unit parameters."""
        return self.gates + len(self.separate) + self.parameters

    @property
    def recurrent_rows(self) -> tuple[int, ...]:
        """Of each recurrent gate the row of the delta that is the gradient by its recurrent sum."""
        return tuple(
            self.gates + self.separate.index(gate) if gate in self.separate else gate
            for gate in self.recurrent_gates
        )

    @property
    def carries(self) -> bool:
        """Whether h reaches a new state also without W_hh."""
        return any(former == 0 for former, _ in self.diagonal)

    @property
    def separate_bits(self) -> int:
        """Bit g: gate g is separate; `recurrent_bits` likewise; `after_bits` and `before_bits` of states."""
        return bits_of(self.separate)

    @property
    def recurrent_bits(self) -> int:
        return bits_of(self.recurrent_gates)

    @property
    def after_bits(self) -> int:
        return bits_of(self.after)

    @property
    def before_bits(self) -> int:
        return bits_of(self.before)

    @property
    def blocks(self) -> tuple[tuple[int, int, bool], ...]:
        """Blocks of a step's transposed Jacobian in CSR order, (former state, new state, whether dense), with
        every block of the diagonal: padded steps are the identity."""
        dense = set(self.dense)
        diagonal = set(self.diagonal) | {(state, state) for state in range(self.states)}
        return tuple((j, i, (j, i) in dense) for j, i in sorted(dense | diagonal))

    @property
    def entries(self) -> str:
        """The number of a step's entries, an expression of `hidden`."""
        dense = sum(is_dense for _, _, is_dense in self.blocks)
        single = len(self.blocks) - dense
        return f"{dense} * hidden * hidden" + (f" + {single} * hidden" if single else "")


def bits_of(numbers: Iterable[int]) -> int:
    """The integer whose bits of these numbers are set."""
    return sum(1 << number for number in numbers)

"""What a user says of a recurrent cell, checked by its names."""

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

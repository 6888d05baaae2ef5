"""A definition's form: derived, written, and its twins' functions made from the text."""

from __future__ import annotations

import hashlib
import linecache
import textwrap
from dataclasses import dataclass
from functools import cache
from typing import Any

from bppsa_cupy.cells.definition import Definition
from bppsa_cupy.cells.derivation import derive
from bppsa_cupy.cells.emission import twin_text
from bppsa_cupy.cells.graph import Graph
from bppsa_cupy.cells.texts import Parts
from bppsa_cupy.cells.trace import is_affine, trace
from bppsa_cupy.raw_kernels.frames.form import CellForm, Functions

_TEMPLATE = '''"""The cell {name} for twins; `python -m bppsa_cupy.cells.generate` writes it."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.frames.form import CellForm, Functions
{functions}

FORM = CellForm(
{numbers}
    functions=Functions(forward, backward, coefficients, enter, entry, carry),
)  # fmt: skip
'''


@dataclass(frozen=True)
class Written:
    """A cell's texts and numbers.

    functions  the text of its twins' functions, with what they import of twins
    numbers    the fields of its `CellForm` but for texts and functions
    """

    functions: str
    numbers: dict[str, Any]

    def module(self) -> str:
        """The text of `raw_kernels/cells/NAME.py`."""
        shown = [f"{field}={_shown(value)}" for field, value in self.numbers.items()]
        numbers = textwrap.fill(", ".join(shown), 106, initial_indent="    ", subsequent_indent="    ") + ","
        return _TEMPLATE.format(name=self.numbers["name"], functions=self.functions, numbers=numbers)


def write(definition: Definition) -> Written:
    """Derive and write a cell; raises CellError as `trace` does. The same texts in every run."""
    traced = trace(definition)
    derived = derive(Graph(traced))
    parts = Parts(derived)
    dense, diagonal = parts.blocks()
    states = len(definition.states)
    numbers = {
        "name": definition.name,
        "gates": len(definition.gates),
        "states": states,
        "kept": len(derived.kept),
        "parameters": len(definition.parameters),
        "separate": derived.separate,
        "after": parts.read_after,
        "before": parts.read_before,
        "coefficients": len(parts.varying),
        "dense": dense,
        "diagonal": diagonal,
        "columns": 4 if states == 1 else 2,
        "tile_columns": 8 if states == 1 else 4,
    }
    if definition.recurrent is not None:
        numbers["recurrent"] = definition.recurrent_gates
    if not traced.u and is_affine(traced):
        numbers["affine"] = True
    return Written(twin_text(parts), numbers)


def form_of(written: Written) -> CellForm:
    """The form of a cell that no file holds."""
    return CellForm(**written.numbers, functions=functions_of(written.functions, Functions))


@cache
def functions_of(text: str, kind: type[Any]) -> Any:
    """The `kind` of functions that a text of twins' functions makes, once; tracebacks show its lines."""
    source = f"from numba.extending import register_jitable\n{text}"
    file = f"<cell {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    room: dict[str, Any] = {"__name__": "bppsa_cupy.raw_kernels.cells"}
    exec(compile(source, file, "exec"), room)
    return kind(**{name: room[name] for name in kind.__annotations__ if name in room})


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)

"""What a kernel is: one CUDA C++ text, one Numba twin, one signature that both obey."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FOLDER = Path(__file__).parent

#: Names of the parameter types: `real` and `index` depend on the variant, the others do not.
ARRAY_TYPES = {"real": None, "index": None, "int32": np.int32, "int64": np.int64, "uint8": np.uint8}
SCALAR_TYPES = {"size": np.int64, "flag": np.int32, "double": np.float64, "real_value": None}

C_NAMES = {
    "real": "real",
    "index": "index_t",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "size": "size_type",
    "flag": "int",
    "double": "double",
    "real_value": "real",
}


class Parameter(NamedTuple):
    """One parameter of a kernel.

    role  "in" (read only), "out" (every element is written, none is read), "inout", or "scalar"
    size  for arrays: the number of elements, an expression over the kernel's scalar parameters
    """

    name: str
    type: str
    role: str
    size: str = ""

    @property
    def is_array(self) -> bool:
        return self.role != "scalar"

    def declaration(self) -> str:
        """This parameter as CUDA C++ declares it."""
        if not self.is_array:
            return f"{C_NAMES[self.type]} {self.name}"
        const = "const " if self.role == "in" else ""
        return f"{const}{C_NAMES[self.type]}* __restrict__ {self.name}"


def array_in(name: str, type: str, size: str) -> Parameter:
    """An array the kernel only reads."""
    return Parameter(name, type, "in", size)


def array_out(name: str, type: str, size: str) -> Parameter:
    """An array the kernel writes whole and never reads."""
    return Parameter(name, type, "out", size)


def array_inout(name: str, type: str, size: str) -> Parameter:
    """An array the kernel reads and writes, wholly or in part."""
    return Parameter(name, type, "inout", size)


def scalar(name: str, type: str = "size") -> Parameter:
    """A scalar: `size` (64-bit), `flag` (int), `double`, or `real_value` (the variant's real)."""
    return Parameter(name, type, "scalar")


class LaunchShape(NamedTuple):
    """A CUDA launch: blocks, threads a block, bytes of dynamic shared memory."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0


MAXIMAL_GRID = 65535 * 8


def one_thread_per(count: int, block: int = 256) -> LaunchShape:
    """The launch of a grid-stride kernel over `count` work items; no block where there is no work."""
    blocks = min(-(-count // block), MAXIMAL_GRID)
    return LaunchShape((max(blocks, 0), 1, 1), (block, 1, 1))


@dataclass(frozen=True)
class Variant:
    """The types a kernel is compiled for: float32 or float64, 32- or 64-bit indices."""

    real: str = "float32"
    index: str = "uint32"

    def type_definitions(self) -> str:
        real = {"float32": "float", "float64": "double"}[self.real]
        index = {"uint32": "unsigned int", "uint64": "unsigned long long"}[self.index]
        return f"typedef {real} real;\ntypedef {index} index_t;\n"


#: The dtypes of `real` and of `index`; the first is taken where no array of a launch says which.
REALS = ("float32", "float64")
INDICES = ("uint32", "uint64")
VARIANTS = tuple(Variant(real, index) for real in REALS for index in INDICES)


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel pair.

    name        the entry point in `NAME.cu`, and the name of the twin
    parameters  in the order both take them
    launch      scalar arguments by name -> LaunchShape; results never depend on it beyond the
                requirements the .cu text states
    twin        Numba-compiled function with the same parameters (arrays one-dimensional)

    Law: for equal arguments the twin and the CUDA text leave equal values in every `out` and
    `inout` array, up to the rounding of a different order of summation.
    """

    name: str
    parameters: tuple[Parameter, ...]
    launch: Callable[[Mapping[str, Any]], LaunchShape]
    twin: Callable[..., None]

    def source(self, variant: Variant) -> str:
        """The CUDA C++ text of one variant, headers inlined (a compile cache must see their edits)."""
        return variant.type_definitions() + inline_headers((FOLDER / f"{self.name}.cu").read_text())

    @property
    def uses_index(self) -> bool:
        return any(parameter.type == "index" for parameter in self.parameters)

    def variants(self) -> tuple[Variant, ...]:
        """The variants worth compiling: index width only where an index array is taken."""
        return tuple(v for v in VARIANTS if self.uses_index or v.index == "uint32")


def inline_headers(text: str) -> str:
    """`text` with each `#include "NAME.cuh"` replaced by that header of this folder."""

    def header(match: re.Match[str]) -> str:
        return inline_headers((FOLDER / match.group(1)).read_text())

    return re.sub(r'^#include "([\w.]+\.cuh)"$', header, text, flags=re.MULTILINE)

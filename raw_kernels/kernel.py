"""What a kernel is: a CUDA C++ text, whose signature says what it takes, and a Numba twin that obeys it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES

FOLDER = Path(__file__).parent

#: Names of the parameter types: `real` and `index` depend on the variant, the others do not.
ARRAY_TYPES = {
    "real": None,
    "index": None,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "double": np.float64,
}
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
ARRAYS_OF_C = {C_NAMES[type]: type for type in ARRAY_TYPES}
SCALARS_OF_C = {C_NAMES[type]: type for type in SCALAR_TYPES}


class Parameter(NamedTuple):
    """One parameter of a kernel.

    role  "in" (read only), "out" (every element is written, none is read), "inout", or "scalar"
    size  for arrays: the number of elements, an expression over the kernel's scalar parameters
    samples, rows  for arrays of walks the extents of two axes, likewise: (..., samples, rows) on a GPU, and
          (..., rows, samples) on the host
    """

    name: str
    type: str
    role: str
    size: str = ""
    samples: str = ""
    rows: str = ""

    @property
    def is_array(self) -> bool:
        return self.role != "scalar"

    def declaration(self) -> str:
        """This parameter as CUDA C++ declares it."""
        if not self.is_array:
            return f"{C_NAMES[self.type]} {self.name}"
        const = "const " if self.role == "in" else ""
        return f"{const}{C_NAMES[self.type]}* __restrict__ {self.name}"


SIGNATURE = re.compile(
    r'^extern "C" __global__ void (?:[A-Z_]+ )?(?:__launch_bounds__\([^)]*\) )?(\w+)\(\n(.*?)\n?\)\n\{',
    re.MULTILINE | re.DOTALL,
)
#: The line above a kernel of a family.
SECTION = re.compile(r"^// ---- (\w+) ----\n", re.MULTILINE)
ARRAY = re.compile(r"(const )?([\w ]+)\* __restrict__ (\w+)")
SHAPE = r"(\((?:[^()]|\([^()]*\))*\))"
SIZE = re.compile(rf"{SHAPE}(?: if (\w+) else {SHAPE})?(?: (output only|input and output))?")


def read_parameters(name: str, text: str) -> tuple[Parameter, ...]:
    """The parameters of a kernel, as the signature of its CUDA C++ text gives them.

    Each array has a line of its own, with a comment that gives its shape, `(rows, 2 * hidden)` or
    `(nnz, batch) if batched else (nnz)`, in Python's expressions over the scalars, and for an array
    that is written its role, "output only" or "input and output"; any words may follow, also on lines
    of comment below it. An array that is const is input. A bar, `(steps, batch | rows)`, marks an array of
    walks: the host has samples innermost, `(steps, rows, batch)`.
    """
    entries = SIGNATURE.findall(text)
    assert [entry for entry, _ in entries] == [name], f"{name}.cu has one entry, {name}"
    parameters: list[Parameter] = []
    comments: dict[str, str] = {}
    for line in entries[0][1].splitlines():
        code, _, comment = line.partition("//")
        for declared in filter(None, map(str.strip, code.split(","))):
            array = ARRAY.fullmatch(declared)
            kind, _, scalar = declared.rpartition(" ")
            types, c_type = (ARRAYS_OF_C, array[2]) if array else (SCALARS_OF_C, kind)
            assert c_type in types, f"{name}.cu: no parameter is declared as {declared!r}"
            role = "scalar" if not array else "in" if array[1] else ""
            parameters.append(Parameter(array[3] if array else scalar, types[c_type], role))
        comments[parameters[-1].name] = f"{comments.get(parameters[-1].name, '')} {comment.strip()}".strip()
    return tuple(p if p.role == "scalar" else _sized(name, p, comments.get(p.name, "")) for p in parameters)


def _sized(kernel: str, parameter: Parameter, comment: str) -> Parameter:
    said = SIZE.match(comment)
    assert said, f"{kernel}.cu says the shape of {parameter.name} behind its declaration"
    role = parameter.role or {"output only": "out", "input and output": "inout"}.get(said[4])
    assert role and not (parameter.role and said[4]), f"{kernel}.cu says the role of {parameter.name}"
    size = _product(said[1])
    before, _, rows = said[1].partition("|")
    return parameter._replace(
        role=role,
        size=f"{size} if {said[2]} else {_product(said[3])}" if said[2] else size,
        samples=before.rpartition(",")[2].strip(" (") if rows else "",
        rows=_product(f"({rows}") if rows else "",
    )


def _product(shape: str) -> str:
    """The number of elements of a shape, as an expression."""
    return " * ".join(f"({extent.strip()})" for extent in re.split("[,|]", shape[1:-1]))


class LaunchShape(NamedTuple):
    """A CUDA launch: blocks, threads a block, bytes of dynamic shared memory."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0


#: A kernel's scalar arguments by name, as `itemsize` the bytes of a real and as `shared_bytes` the bytes of
#: shared memory that a block can have -> the shape of its launch.
Launch = Callable[[Mapping[str, Any]], LaunchShape]

MAXIMAL_GRID = 65535 * 8


def one_thread_per(count: int, block: int = 256) -> LaunchShape:
    """The launch of a grid-stride kernel over `count` work items; no block where there is no work."""
    blocks = min(-(-count // block), MAXIMAL_GRID)
    return LaunchShape((max(blocks, 0), 1, 1), (block, 1, 1))


class Layout(NamedTuple):
    """How a recurrent kernel lays hidden units over threads, compiled into its text as constants.

    width  the most hidden units; 0: any number
    units  places for units in a walk of a sample, or of a chunk of one: as many as units at least, or of a
           walk by a whole block fewer, each for several; 0: a reduction whose block loops over units
    lanes  threads that share a place: a power of two
    walks  that a block makes: one, or as many as fill whole warps; of a cluster the samples that go together
    beyond  packs of 16 bytes of weights that a thread has in shared memory, beside those in its registers
    cluster  blocks that share out the units, `units` places each
    """

    width: int = 0
    units: int = 0
    lanes: int = 1
    walks: int = 1
    beyond: int = 0
    cluster: int = 1


#: The layout of any width, and the one of kernels that have no others.
IN_SHARED_MEMORY = Layout()


@dataclass(frozen=True)
class Variant:
    """What a kernel is compiled for: float32 or float64, 32- or 64-bit indices, a layout."""

    real: str = "float32"
    index: str = "uint32"
    layout: Layout = IN_SHARED_MEMORY

    @property
    def itemsize(self) -> int:
        """Bytes of a real."""
        return np.dtype(self.real).itemsize

    def type_definitions(self) -> str:
        real = {"float32": "float", "float64": "double"}[self.real]
        index = {"uint32": "unsigned int", "uint64": "unsigned long long"}[self.index]
        layout = "".join(f"#define {name.upper()} {value}\n" for name, value in self.layout._asdict().items())
        return f"typedef {real} real;\ntypedef {index} index_t;\n" + (layout if self.layout.width else "")


#: The dtypes of `real` and of `index`; the first is taken where no array of a launch says which.
REALS = ("float32", "float64")
INDICES = ("uint32", "uint64")
VARIANTS = tuple(Variant(real, index) for real in REALS for index in INDICES)


#: Bytes of shared memory that a block can have on every GPU we compile for.
LEAST_SHARED_BYTES = min(architecture.shared_bytes for architecture in ARCHITECTURES.values())

Layouts = Callable[[str, int], tuple[Layout, ...]]


def no_layouts(real: str, shared_bytes: int) -> tuple[Layout, ...]:
    """Of kernels that lay nothing out."""
    return ()


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel pair.

    name        the entry point of the CUDA text, and the name of the twin
    parameters  in the order both take them
    launch      scalar arguments by name, as `itemsize` the bytes of a real, and as `shared_bytes` the bytes
                of shared memory that a block can have -> LaunchShape; results never depend on it beyond the
                requirements the .cu text states
    twin        Numba-compiled function with the same parameters (arrays one-dimensional)
    text        CUDA C++, before headers are inlined
    layouts     (dtype of `real`, bytes of shared memory a block can have) -> layouts of ascending width: a
                launch takes the first that holds its `hidden`
    cooperative  whether all blocks of a launch wait for one another, so that all must run at once
    reals       the dtypes of `real` that it is compiled for

    Law: for equal arguments the twin and the CUDA text leave equal values in every `out` and
    `inout` array, up to the rounding of a different order of summation.
    """

    name: str
    parameters: tuple[Parameter, ...]
    launch: Launch
    twin: Callable[..., None]
    text: str = field(repr=False)
    layouts: Layouts = no_layouts
    cooperative: bool = False
    reals: tuple[str, ...] = REALS

    def source(self, variant: Variant) -> str:
        """The CUDA C++ text of one variant, headers inlined (a compile cache must see their edits)."""
        return variant.type_definitions() + inline_headers(self.text)

    @functools.cached_property
    def places_of_walks(self) -> tuple[int, ...]:
        """The places of parameters that are arrays of walks."""
        return tuple(place for place, parameter in enumerate(self.parameters) if parameter.rows)

    @property
    def uses_index(self) -> bool:
        return any(parameter.type == "index" for parameter in self.parameters)

    def variants(self, shared_bytes: int = LEAST_SHARED_BYTES) -> tuple[Variant, ...]:
        """The variants worth compiling: index width only where an index array is taken, and every layout."""
        return tuple(
            replace(v, layout=layout)
            for v in VARIANTS
            if v.real in self.reals and (self.uses_index or v.index == "uint32")
            for layout in self.layouts(v.real, shared_bytes) or (IN_SHARED_MEMORY,)
        )

    def variant_for(self, types: Variant, scalars: Mapping[str, Any]) -> Variant:
        """The variant of these types for a launch with what `launch` is given."""
        layouts = self.layouts(types.real, scalars["shared_bytes"])
        return replace(types, layout=layout_for(layouts, scalars["hidden"])) if layouts else types


def layout_for(layouts: tuple[Layout, ...], hidden: int) -> Layout:
    """The first layout that holds `hidden` units. A walk for which there is none has a launch on the host
    alone, whose twins need no layout."""
    return next(
        (layout for layout in layouts if not layout.width or hidden <= layout.width), IN_SHARED_MEMORY
    )


def kernel(launch: Launch) -> Callable[[Callable[..., None]], Kernel]:
    """Make a twin a kernel pair, with the section of its name in the `.cu` file of the twin's module."""

    def pair(twin: Callable[..., None]) -> Kernel:
        name, family = twin.__name__, twin.__module__.rpartition(".")[2]
        text = split_family(read_source(f"{family}.cu"))[name]
        return Kernel(name, read_parameters(name, text), launch, twin, text)

    return pair


def split_family(text: str) -> dict[str, str]:
    """The texts of a family's kernels by name: its head, and the section behind the line `// ---- NAME ----`,
    so that a kernel compiles nothing of another one."""
    head, *parts = SECTION.split(text)
    return {name: head + section for name, section in zip(parts[::2], parts[1::2], strict=True)}


@cache
def read_source(name: str) -> str:
    """The text of a file of this folder."""
    return (FOLDER / name).read_text(encoding="utf-8")


@cache
def digest_of_sources() -> str:
    """SHA-256 of all texts of kernels and of the code that launches them."""
    files = sorted(file for file in FOLDER.rglob("*") if file.suffix in (".cu", ".cuh", ".py"))
    return sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def inline_headers(text: str) -> str:
    """`text` with each `#include "NAME.cuh"` replaced by that header of this folder, or of one below it."""

    def header(match: re.Match[str]) -> str:
        return inline_headers(read_source(match.group(1)))

    return re.sub(r'^#include "([\w./]+\.cuh)"$', header, text, flags=re.MULTILINE)

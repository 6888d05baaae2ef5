"""One kernel's hot loop on one target: what a step takes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.raw_kernels.kernel import Kernel, Variant
from bppsa_cupy.system.compilation import kept_in
from bppsa_cupy.system.files import write_text
from bppsa_cupy.tools.instruments.machine_code import nvrtc
from bppsa_cupy.tools.instruments.machine_code.cases import (
    constants_of,
    launch_of,
    loads_of_step,
    scalars_of,
    trips_of,
)
from bppsa_cupy.tools.instruments.machine_code.disassembly import disassemble, nvdisasm_version
from bppsa_cupy.tools.instruments.machine_code.flow import Access, reach
from bppsa_cupy.tools.instruments.machine_code.instructions import Instruction
from bppsa_cupy.tools.instruments.machine_code.loops import REAL, hot_loop, steps_of
from bppsa_cupy.tools.instruments.machine_code.sectors import traffic
from bppsa_cupy.tools.instruments.machine_code.walk import PLACES, walk

#: Modules of this room that tell what was measured.
TELLING = ("cluster_walks", "goals", "listing", "page", "predictions", "single_steps")


@dataclass(frozen=True)
class Measure:
    """What one warp does in a step of a kernel's hot loop, all of it a step but for registers and spills.

    kernel, target, dtype  which code; `hidden` the width it was read for, None where the kernel has none
    text             a digest of the CUDA C++ text
    registers        a thread; `spill_bytes` that it stores and loads where they do not suffice
    warps            of a block
    steps            of a round of the loop
    instructions     issued; `reals` of them arithmetic on reals
    cycles           by where loads from global memory find their values
    waits            of the cycles with loads from L2, those that each kind of instruction is waited for
    loads, stores    of global memory; `bytes` that the lanes ask for, and `sectors` of 32 bytes they lie in,
                     None where lanes' addresses are not known
    """

    kernel: str
    target: str
    dtype: str
    hidden: int | None
    text: str
    registers: int
    spill_bytes: int
    warps: int
    steps: int
    instructions: float
    reals: float
    cycles: Mapping[str, float]
    waits: Mapping[str, float]
    loads: float
    stores: float
    bytes: float
    sectors: float | None


def measure(kernel: Kernel, target: str, *, hidden: int | None = None, dtype: str = "float32") -> Measure:
    """The measure of one kernel for one target; kept in the user's cache folder by what it is made of.

    hidden  the width of recurrent kernels (default 20)

    Raises NvrtcError, DisassemblyError where the tool that is needed is missing.
    """
    built = Built(kernel, target, hidden, dtype)
    made_of = (built.text, target, hidden, dtype, nvrtc.version(), nvdisasm_version(), _tool())
    kept = kept_in() / "machine-code" / f"{hashlib.sha256(repr(made_of).encode()).hexdigest()}.json"
    if kept.exists():
        return Measure(**json.loads(kept.read_text(encoding="utf-8")))
    made = _measure(built)
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_text(kept, json.dumps(asdict(made)))
    return made


class Built:
    """A kernel's text for the sizes of its case, and the code it becomes for one target."""

    def __init__(
        self, kernel: Kernel, target: str, hidden: int | None = None, dtype: str = "float32"
    ) -> None:
        self.kernel, self.target = kernel, target
        self.scalars = scalars_of(kernel, **({} if hidden is None else {"hidden": hidden}))
        itemsize = np.dtype(dtype).itemsize
        self.shape, given = launch_of(kernel, itemsize, target, self.scalars)
        self.variant = variant_of(kernel, dtype, given)
        self.source = kernel.source(self.variant)

    @property
    def text(self) -> str:
        """A digest of the text."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]

    @cached_property
    def compiled(self) -> nvrtc.Compiled:
        return nvrtc.compile_text(self.source, self.target)

    @cached_property
    def loop(self) -> Round:
        """A round of the hot loop."""
        constants = constants_of(self.kernel, self.variant, self.target, self.scalars)
        flow = reach(disassemble(self.compiled.code, self.kernel.name), constants)
        loading = bool(loads_of_step(self.kernel, self.variant))
        numbers = hot_loop(flow, trips_of(self.kernel, self.scalars), loading)
        return Round(
            [flow.code.instructions[k] for k in numbers],
            [k not in flow.idle for k in numbers],
            [flow.accesses.get(k) for k in numbers],
        )


class Round(NamedTuple):
    """The instructions of a round of a loop; whether some lane takes part in each; and of each that loads
    from or stores to global memory, where."""

    instructions: list[Instruction]
    taken: list[bool]
    accesses: list[Access | None]


def variant_of(kernel: Kernel, dtype: str, given: Mapping[str, Any]) -> Variant:
    """The variant of reals of `dtype` and indices of 32 bits for a launch with what it is given."""
    return kernel.variant_for(next(v for v in kernel.variants() if v.real == dtype), given)


@cache
def _tool() -> str:
    """A digest of the modules that measure."""
    texts = (f.read_bytes() for f in sorted(Path(__file__).parent.glob("*.py")) if f.stem not in TELLING)
    return hashlib.sha256(b"".join(texts)).hexdigest()


def _measure(built: Built) -> Measure:
    kernel, loop = built.kernel, built.loop
    loads = loads_of_step(kernel, built.variant)
    if loads is None:
        steps = steps_of(loop.instructions)
    else:
        steps = sum(one.name == "LDG" for one in loop.instructions) // loads if loads else 1
    walked = {place: walk(loop.instructions, loop.taken, built.target, place) for place in PLACES}
    moved = traffic((o, a) for o, a in zip(loop.instructions, loop.accesses, strict=True) if a is not None)
    return Measure(
        kernel=kernel.name,
        target=built.target,
        dtype=built.variant.real,
        hidden=built.scalars.get("hidden"),
        text=built.text,
        registers=built.compiled.registers,
        spill_bytes=built.compiled.spill_bytes,
        warps=-(-math.prod(built.shape.block) // 32),
        steps=steps,
        instructions=round(len(loop.instructions) / steps, 2),
        reals=round(sum(one.name in REAL for one in loop.instructions) / steps, 2),
        cycles={place: round(one.cycles / steps, 1) for place, one in walked.items()},
        waits={name: round(wait / steps, 1) for name, wait in walked["L2"].waits.items()},
        loads=round(moved.loads / steps, 2),
        stores=round(moved.stores / steps, 2),
        bytes=round(moved.bytes / steps, 2),
        sectors=None if moved.sectors is None else round(moved.sectors / steps, 2),
    )

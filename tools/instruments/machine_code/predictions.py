"""Times of passes over time on an H200, from what steps of their kernels take.

One warp alone takes its cycles; warps that share a scheduler hide each other's waits, so that many take the
instructions that they issue, if those are more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from bppsa_cupy.processors.models import H200
from bppsa_cupy.processors.sizes import WalkSize
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.kernel import Kernel
from bppsa_cupy.timescan.cost import newton_seconds
from bppsa_cupy.timescan.forward import EXPECTED_ITERATIONS
from bppsa_cupy.tools.instruments.machine_code.cases import launch_of, scalars_of
from bppsa_cupy.tools.instruments.machine_code.measure import Measure
from bppsa_cupy.tools.instruments.machine_code.walk import BESIDE, memory_latencies

#: The target whose rows predict, and the GPU of it.
PREDICTED, GPU = "sm_90", H200
#: Chunks that a pass may be cut into.
CHUNKS = (26, 53, 105, 132, 165, 211, 264, 317, 370, 423, 528, 634, 845, 1056)

#: Kernels by name, and their rows on one target.
Kernels = Mapping[str, Kernel]
Rows = Mapping[str, Measure]


@dataclass(frozen=True)
class Prediction:
    """One part of a pass: its seconds, and what they are counted from."""

    cell: str
    way: str
    part: str
    seconds: float
    count: str


@dataclass(frozen=True)
class Sizes:
    """Steps, samples and hidden units of a layer."""

    steps: int
    batch: int
    hidden: int


#: The longest case of RNNs, and that of GRUs.
LONGEST, GRU_CASE = Sizes(30000, 16, 20), Sizes(1034, 16, 20)


def predictions(
    kernels: Kernels, rows: Rows, sizes: Sizes, cells: Iterable[str] | None = None
) -> list[dict[str, Any]]:
    """Forward and backward passes of cells (default all), serially and by chunks, part by part."""
    if cells is None:
        cells = sorted(cell for cell in FORMS if f"{cell}_reduce" in rows)
    found = [p for cell in cells for p in _of_cell(cell, kernels, rows, sizes)]
    return [asdict(one) for one in found]


def _of_cell(cell: str, kernels: Kernels, rows: Rows, sizes: Sizes) -> list[Prediction]:
    def chunked(verb: str, chunks: int) -> list[Prediction]:
        return _chunked(cell, verb, chunks, kernels, rows, sizes)

    def best(verb: str) -> list[Prediction]:
        return min((chunked(verb, n) for n in CHUNKS), key=lambda parts: sum(p.seconds for p in parts))

    weights = _weight_gradients(cell, kernels, rows, sizes)
    return [
        _serial(cell, "forward", rows, sizes),
        *best("forward"),
        _serial(cell, "backward", rows, sizes),
        *best("backward"),
        *weights,
    ]


def _serial(cell: str, verb: str, rows: Rows, sizes: Sizes) -> Prediction:
    cycles = rows[f"{cell}_{verb}"].cycles["L2"]
    count = f"{sizes.steps} steps of {cycles:.0f} cycles"
    return Prediction(cell, f"{verb}, serial", "walk", sizes.steps * cycles / GPU.alone + GPU.launch, count)


def _chunked(
    cell: str, verb: str, chunks: int, kernels: Kernels, rows: Rows, sizes: Sizes
) -> list[Prediction]:
    """Reduce, scan, expand; forward as many times as Newton's method has iterations."""
    scan = "newton_scan" if verb == "forward" else "chunk_scan"
    way, times = f"{verb}, {chunks} chunks", EXPECTED_ITERATIONS if verb == "forward" else 1
    chunk, state = -(-sizes.steps // chunks), _states(cell, kernels, sizes) * sizes.hidden
    of_chunk = rows[scan].cycles["L2"] * state / sizes.hidden
    # A forward kernel has no chunks: cut into chunks, each is as one more sample.
    walkers = {"batch": sizes.batch * chunks, "steps": chunk} if verb == "forward" else {"batch": sizes.batch}
    made = [
        Prediction(cell, way, "reduce", *_many(f"{cell}_reduce", kernels, rows, sizes, chunk, {})),
        Prediction(
            cell, way, scan, chunks * of_chunk / GPU.alone, f"{chunks} chunks of {of_chunk:.0f} cycles"
        ),
        Prediction(cell, way, "expand", *_many(f"{cell}_{verb}", kernels, rows, sizes, chunk, walkers)),
    ]
    if verb == "backward":
        # The fifth is of the serial walk, which as a rule returns at once.
        return [*made, Prediction(cell, way, "launches", 5 * GPU.launch, "5 launches")]
    made.append(
        Prediction(cell, way, "launches and check", 4 * GPU.launch + GPU.check, "4 launches and a wait")
    )
    size = WalkSize(FORMS[cell], sizes.steps, sizes.batch, sizes.hidden, 4)
    own = Prediction(
        cell, way, "copies and settling", newton_seconds(GPU, size, chunk, 0), "the model that chooses"
    )
    return [*(replace(p, seconds=times * p.seconds, count=f"{times} × {p.count}") for p in made), own]


def _states(cell: str, kernels: Kernels, sizes: Sizes) -> int:
    """States of a cell: how often `hidden` goes into the elements of an initial state."""
    initial = next(p for p in kernels[f"{cell}_backward"].parameters if p.name == "entering")
    one = {**scalars_of(kernels[f"{cell}_backward"]), "steps": 1, "chunk": 1, "batch": 1, "hidden": 1}
    return int(eval(initial.size, {}, one))


def _many(
    name: str, kernels: Kernels, rows: Rows, sizes: Sizes, chunk: int, others: Mapping[str, int]
) -> tuple[float, str]:
    """Seconds of `chunk` steps of all warps of a launch, and their count."""
    row = rows[name]
    given = {"steps": sizes.steps, "batch": sizes.batch, "hidden": sizes.hidden, "chunk": chunk, **others}
    shape, _ = launch_of(kernels[name], 4, PREDICTED, scalars_of(kernels[name], **given))
    warps = math.prod(shape.grid) * -(-math.prod(shape.block) // 32)
    each = -(-warps // (GPU.workers * GPU.schedulers))
    resident = max(1, GPU.registers // (-(-row.registers // 8) * 8 * 32))
    waves = -(-each // resident)
    cycles = max(waves * row.cycles["L2"], each * row.instructions)
    bound = "issue" if cycles > waves * row.cycles["L2"] else "latency"
    count = f"{chunk} steps of {cycles:.0f} cycles: {each} warps a scheduler, {resident} at once, by {bound}"
    return chunk * cycles / GPU.busy, count


def _weight_gradients(cell: str, kernels: Kernels, rows: Rows, sizes: Sizes) -> list[Prediction]:
    """The gradients of W_ih (of one feature) and W_hh: rounds of 32 products, two launches."""
    name = "sequence_weight_gradient"
    if name not in rows:
        return []
    tiles = -(-_gates(cell, kernels) * sizes.hidden // 32)
    rounds = -(-sizes.steps * sizes.batch // (32 * GPU.workers))
    load = memory_latencies(rows[name].target)["memory"]
    each = tiles * rows[name].warps / GPU.schedulers
    cycles = load + 2 * BESIDE["BAR"] + 32 * max(rows[name].cycles["L1"], each * rows[name].instructions)
    seconds = 2 * (rounds * cycles / GPU.busy + GPU.launch)
    count = f"2 launches, {rounds} rounds of {cycles:.0f} cycles: a load, 32 products, two barriers"
    return [Prediction(cell, "backward", "weight gradients", seconds, count)]


def _gates(cell: str, kernels: Kernels) -> int:
    weights = next(p for p in kernels[f"{cell}_backward"].parameters if p.name == "weight_hh")
    one = {**scalars_of(kernels[f"{cell}_backward"]), "batch": 1, "sets": 1, "walks": 1, "hidden": 1}
    return int(eval(weights.size, {}, one))

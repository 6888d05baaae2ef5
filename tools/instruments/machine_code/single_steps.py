"""Times of single steps of wide recurrent layers on an H200, where each is a launch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bppsa_cupy.processors.models import H200, GpuModel
from bppsa_cupy.processors.sizes import WalkSize
from bppsa_cupy.processors.warps import stepping
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.tools.instruments.machine_code.cases import WIDE_CELLS

#: Hidden units and samples that are told.
WIDTHS, BATCHES = (128, 256, 512, 1024), (1, 16, 64)


@dataclass(frozen=True)
class SingleStep:
    """One step "forward" or "backward" of a layer; times in seconds.

    seconds    predicted, with what lies between two launches
    bound      what takes the longest of it: a warp's "latency", the "issue" of instructions, reads from "L2"
               or from "memory"
    read       bytes that blocks read
    cycles     of a warp that is alone
    multiply_adds  of the layer; `least` is what they and the weights, read once, take
    in_blocks  of the walk whose blocks go through all steps with samples of their own
    taken      "clusters", "a launch a step" or "in blocks", as the model chooses
    """

    cell: str
    verb: str
    hidden: int
    batch: int
    seconds: float
    bound: str
    read: float
    cycles: float
    multiply_adds: int
    least: float
    in_blocks: float
    taken: str


def single_steps(gpu: GpuModel = H200) -> list[dict[str, Any]]:
    """A row a cell, width, batch and direction; float32."""
    return [
        asdict(single_step(gpu, WalkSize(FORMS[cell], 1, batch, hidden, 4), verb))
        for cell in WIDE_CELLS
        for verb in ("forward", "backward")
        for hidden in WIDTHS
        for batch in BATCHES
    ]


def single_step(gpu: GpuModel, size: WalkSize, verb: str) -> SingleStep:
    """The row of one layer."""
    warps, read = stepping(size, verb)
    weights = size.cell.gates * size.hidden * size.units
    multiply_adds, held = weights * size.batch, gpu.is_cached(size)
    rate = gpu.cache if held else gpu.memory
    schedulers = gpu.workers * gpu.schedulers
    issued = -(-warps.number // schedulers) * warps.instructions
    bound = "issue" if issued > warps.cycles else "latency"
    if read / rate > gpu.step_seconds(warps):
        bound = "L2" if held else "memory"
    return SingleStep(
        size.cell.name, verb, size.hidden, size.batch, gpu.single_step_seconds(size, verb), bound, read,
        warps.cycles, multiply_adds,
        max(weights * size.itemsize / rate, multiply_adds / (32 * schedulers * gpu.busy)),
        gpu.walk_in_blocks_seconds(size, verb),
        _taken(gpu, size, verb),
    )  # fmt: skip


def _taken(gpu: GpuModel, size: WalkSize, verb: str) -> str:
    """The way that the model takes."""
    if gpu.cluster_layout(size, verb) is not None:
        return "clusters"
    return "a launch a step" if gpu.goes_by_steps(size, verb) else "in blocks"

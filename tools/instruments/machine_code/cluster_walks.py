"""Walks by thread-block clusters on an H200: what they take by the model, and which kernels' code is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from bppsa_cupy.processors.models import H200, GpuModel
from bppsa_cupy.processors.sizes import WalkSize
from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.clusters import (
    CLUSTERS,
    WIDTH_STEP,
    cluster_kernel,
    groups_of,
    handed_bytes,
    layouts_of_clusters,
    step_cycles,
    sums_of,
)
from bppsa_cupy.raw_kernels.frames.places import beyond_bytes
from bppsa_cupy.raw_kernels.kernel import Kernel, Layout
from bppsa_cupy.tools.instruments.machine_code.cases import WIDE_CELLS

#: Hidden units and samples that are told; the samples for which kernels' code is read.
WIDTHS, BATCHES, READ_FOR = (100, 128, 192, 256, 512, 640, 1024), (1, 4, 16, 64), 16
VERBS = ("forward", "backward")


@dataclass(frozen=True)
class ClusterWalk:
    """A step of a walk by the clusters that the model takes, float32.

    blocks, samples  of a cluster; `lanes` of a place
    at_once          clusters that run at once, an estimate; `waves` of them
    shared, handed   bytes of weights in a block's shared memory, and those that a block hands on in a step
    cycles           of a wave
    seconds          of all waves; `others` of a step by the quickest other way
    """

    cell: str
    verb: str
    hidden: int
    batch: int
    blocks: int
    samples: int
    lanes: int
    at_once: int
    waves: int
    shared: int
    handed: float
    cycles: float
    seconds: float
    others: float


def _sizes() -> Iterator[tuple[WalkSize, str, Layout]]:
    """Those that go by clusters."""
    for cell in WIDE_CELLS:
        for verb in VERBS:
            for hidden in WIDTHS:
                for batch in BATCHES:
                    size = WalkSize(FORMS[cell], 1, batch, hidden, 4)
                    layout = H200.cluster_layout(size, verb)
                    if layout is not None:
                        yield size, verb, layout


def cluster_walks(gpu: GpuModel = H200) -> list[dict[str, Any]]:
    """A row a cell, direction, width and batch."""
    return [asdict(_walk(gpu, *one)) for one in _sizes()]


def _walk(gpu: GpuModel, size: WalkSize, verb: str, layout: Layout) -> ClusterWalk:
    sums, at_once = sums_of(size.cell, verb), gpu.resident_clusters(layout)
    return ClusterWalk(
        size.cell.name, verb, size.hidden, size.batch, layout.cluster, layout.walks, layout.lanes, at_once,
        -(-groups_of(layout, size.heads, size.batch) // at_once), beyond_bytes(layout),
        handed_bytes(layout, sums, size.itemsize), step_cycles(layout, sums, size.itemsize),
        gpu.cluster_step_seconds(size, verb, layout), gpu.other_step_seconds(size, verb),
    )  # fmt: skip


def read_kernels() -> list[tuple[Kernel, int]]:
    """The kernels whose code is read, and their hidden units."""
    return [
        (cluster_kernel(size.cell, verb, layout), size.hidden)
        for size, verb, layout in _sizes()
        if size.batch == READ_FOR
    ]


def limits() -> list[tuple[str, ...]]:
    """A line an architecture and number of blocks: bytes of shared memory of a block, and the widest layers
    of the cells whose walks either way clusters hold, in float32 and in float64."""
    lines = []
    for name, one in ARCHITECTURES.items():
        for blocks in CLUSTERS[::-1]:
            if one.cluster_blocks >= blocks:
                widest = (
                    " / ".join(str(_widest(cell, blocks, itemsize, one.shared_bytes)) for itemsize in (4, 8))
                    for cell in WIDE_CELLS
                )
                lines.append((name, str(blocks), f"{one.shared_bytes >> 10}", *widest))
    return lines


def _widest(cell: str, blocks: int, itemsize: int, shared_bytes: int) -> int:
    hidden = WIDTH_STEP
    while all(
        layouts_of_clusters(sums_of(FORMS[cell], verb), hidden, itemsize, shared_bytes, blocks)
        for verb in VERBS
    ):
        hidden += WIDTH_STEP
    return hidden - WIDTH_STEP

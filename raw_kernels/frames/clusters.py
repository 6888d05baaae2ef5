"""Walks by thread-block clusters, whose blocks share out the units: layouts and kernels.

A block holds the weights of its units in registers and shared memory, as one of several units a place does
(`places`), and hands on what a step makes of them to the others (frames/cuda/clusters.cuh). A cluster walks a
group of samples; there are as many clusters as groups.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.frames.kernels import backward_products, forward_products
from bppsa_cupy.raw_kernels.frames.places import (
    PACK_BYTES,
    WARP,
    Sums,
    beyond_bytes,
    held,
    packs_of,
    products_of_thread,
    resident_packs,
)
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import Kernel, LaunchShape, Layout

#: Blocks of a cluster, lanes of a place, samples that go together; threads of a block, and units from one
#: width to the next: those behind the last unit have weights that are 0.
CLUSTERS, LANES, SAMPLES, THREADS, WIDTH_STEP = (2, 4, 8, 16), (8, 16, 32), (1, 2, 4), 256, 32
#: Sums of a thread at most, and steps that are fetched ahead.
MOST_SUMS, AHEAD = 24, 2
#: Multiprocessors of a group (a GPC), in which a cluster has its blocks.
OF_GROUP = 16


def sums_of(form: CellForm, verb: str) -> Sums:
    """What a step "forward" or "backward" adds up."""
    return (forward_products if verb == "forward" else backward_products)(form).sums


@functools.cache
def layouts_of_clusters(
    sums: Sums, hidden: int, itemsize: int, shared_bytes: int, cluster_blocks: int
) -> tuple[Layout, ...]:
    """The layouts for so many units, by clusters of `cluster_blocks` at most, whose blocks take
    `shared_bytes` at most."""
    width = -(-hidden // WIDTH_STEP) * WIDTH_STEP
    candidates = (
        _layout(sums, width, cluster, lanes, samples, itemsize)
        for cluster in CLUSTERS if cluster <= cluster_blocks for lanes in LANES for samples in SAMPLES
    )  # fmt: skip
    return tuple(
        layout for layout in candidates if layout and block_bytes(layout, sums, itemsize) <= shared_bytes
    )


def layout_of_clusters(
    layouts: Iterable[Layout], sums: Sums, itemsize: int, batch: int, multiprocessors: int
) -> Layout | None:
    """One of these layouts for so many samples: fewest rounds, since clusters that do not run at once wait;
    then fewest products of a thread, since all threads of a step wait for them."""

    def order(layout: Layout) -> tuple[int, int]:
        at_once = max(1, multiprocessors // OF_GROUP * (OF_GROUP // layout.cluster))
        return -(-groups_of(layout, batch) // at_once), products_of_thread(layout, sums, itemsize)

    return min(layouts, key=order, default=None)


def _layout(sums: Sums, width: int, cluster: int, lanes: int, samples: int, itemsize: int) -> Layout | None:
    """The layout for `width` units with the fewest units a place that the block's threads allow; None where a
    thread would keep too many sums, or a block would not have whole packs of units."""
    in_warp, of_block, pack = WARP // lanes, -(-width // cluster), PACK_BYTES // itemsize
    least = -(-of_block // (THREADS // lanes))
    units = -(-of_block // (least * in_warp)) * in_warp
    while least * units % pack:
        units += in_warp
    layout = Layout(width, units, lanes, samples, 0, cluster)
    of_thread = held(layout, sums, itemsize)
    pairs = of_thread.units * samples
    if units * lanes > THREADS or of_thread.units != least or pairs > lanes or of_thread.sums > MOST_SUMS:
        return None
    return layout._replace(beyond=of_thread.packs - resident_packs(layout, sums, itemsize))


def vector_bytes(layout: Layout, sums: Sums, itemsize: int) -> int:
    """Bytes of the vectors that a cluster's blocks exchange in a step; each block keeps all of them."""
    multiplied = packs_of(layout, itemsize) * layout.lanes * PACK_BYTES
    of_blocks = held(layout, sums, itemsize).units * layout.units * layout.cluster * itemsize
    return layout.walks * sums.inputs * max(multiplied, of_blocks)


def shared_bytes_of(layout: Layout, sums: Sums, itemsize: int) -> int:
    """Bytes of shared memory that a launch asks for: weights, and two turns of what is handed on."""
    return beyond_bytes(layout) + 2 * vector_bytes(layout, sums, itemsize)


def block_bytes(layout: Layout, sums: Sums, itemsize: int) -> int:
    """Bytes of shared memory of a block: those, and the rows that are fetched ahead."""
    ahead = AHEAD * sums.rows * layout.units * layout.lanes * itemsize
    return shared_bytes_of(layout, sums, itemsize) + ahead


@functools.cache
def cluster_kernel(form: CellForm, verb: str, layout: Layout) -> Kernel:
    """The walk "forward" or "backward" of a cell by clusters of this layout."""
    sums = sums_of(form, verb)

    def launch(s: Mapping[str, Any]) -> LaunchShape:
        pieces = -(-s["steps"] // s["chunk"]) if verb == "backward" else 1
        clusters = pieces * groups_of(layout, s["batch"])
        shared = shared_bytes_of(layout, sums, s["itemsize"])
        return LaunchShape((clusters * layout.cluster, 1, 1), (layout.units * layout.lanes, 1, 1), shared)

    return replace(kernels_of(form)[verb], launch=launch, layouts=lambda real, shared_bytes: (layout,))


def groups_of(layout: Layout, batch: int) -> int:
    """Groups of samples."""
    return -(-batch // layout.walks)

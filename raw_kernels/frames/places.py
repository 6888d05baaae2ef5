"""Layouts of walks by whole blocks, whose places take several units each, and what they hold.

A place of some lanes adds up the sums of its units; a thread's weights lie in its registers and, as far as
these do not hold them, in shared memory (frames/cuda/registers.cuh). How much of that there is, the device
says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bppsa_cupy.raw_kernels.kernel import Layout

#: Threads of a warp, bytes of a pack; schedulers of a multiprocessor, registers of each, and of a thread at
#: most: the same on every architecture.
WARP, PACK_BYTES = 32, 16
SCHEDULERS, REGISTERS, REGISTERS_OF_THREAD = 4, 16384, 255
#: Widths of layouts: units between two of them are padded with zeros. The widest that fits follows.
WIDTHS = (96, 128, 160, 192, 256)
#: Lanes of a place; threads of a block, of more units a third more; sums of a thread at most.
LANES, THREADS, MORE_THREADS, MOST_SUMS = 8, 256, 384, 24
#: Registers of a thread that hold no weights, as NVRTC takes them without a spill (test_kernels_compile.py):
#: those of a step of a cell by the bytes of a real, for each word of its sums beyond so many, and of weights
#: in shared memory, which come some ahead, with one more for every so many packs.
OF_A_STEP, FREE_SUMS, OF_A_SUM, OF_PACKS, PACKS_A_REGISTER = {4: 63, 8: 75}, 16, 2, 8, 2


class Sums(NamedTuple):
    """What a step adds up: of each unit so many sums, each of the terms of so many vectors of all units; and
    the rows that a thread reads of global memory for its unit."""

    outputs: int
    inputs: int
    rows: int


class Held(NamedTuple):
    """What a thread of a layout has.

    units    of its place, of each of which it adds up the sums of layout.walks samples
    packs    of weights, layout.beyond of them in shared memory
    vectors  packs of what these are multiplied with, from shared memory
    sums     that it adds up
    """

    units: int
    packs: int
    vectors: int
    sums: int


def is_wide(layout: Layout) -> bool:
    """Whether a place of the layout takes several units, which its lanes share out."""
    return layout.lanes > 1 and 0 < layout.units < layout.width


def held(layout: Layout, sums: Sums, itemsize: int) -> Held:
    """What a thread of a layout has."""
    units, packs = -(-layout.width // (layout.units * layout.cluster)), packs_of(layout, itemsize)
    return Held(
        units,
        units * sums.outputs * sums.inputs * packs,
        sums.inputs * packs * layout.walks,
        units * layout.walks * sums.outputs,
    )


def packs_of(layout: Layout, itemsize: int) -> int:
    """Packs of a vector of all units that a lane takes."""
    return -(-layout.width * itemsize // (PACK_BYTES * layout.lanes))


def layouts_of_places(sums: Sums, least: int, itemsize: int, shared_bytes: int) -> Iterator[Layout]:
    """The layouts of more than `least` units, of ascending width, whose blocks take `shared_bytes` at most:
    those of WIDTHS, then the widest."""
    layouts = {
        width: _layout(sums, width, itemsize, shared_bytes) for width in range(least + 1, MORE_THREADS)
    }
    fitting = [width for width, layout in layouts.items() if layout is not None]
    for width in fitting:
        layout = layouts[width]
        if layout is not None and (width in WIDTHS or width == fitting[-1]):
            yield layout


def _layout(sums: Sums, width: int, itemsize: int, shared_bytes: int) -> Layout | None:
    """The layout of so many units, whose places take as few each as a block has threads for, in whole warps;
    None where it does not fit."""
    in_warp, most = WARP // LANES, (THREADS if width <= THREADS else MORE_THREADS) // LANES
    least = -(-width // most)
    layout = Layout(width, -(-width // (least * in_warp)) * in_warp, LANES, 1)
    of_thread = held(layout, sums, itemsize)
    if not 1 < of_thread.units <= LANES or of_thread.sums > MOST_SUMS:
        return None
    layout = layout._replace(beyond=of_thread.packs - resident_packs(layout, sums, itemsize))
    return layout if block_bytes(layout, sums, itemsize) <= shared_bytes else None


def resident_packs(layout: Layout, sums: Sums, itemsize: int) -> int:
    """Packs of a thread's weights that its registers hold."""
    of_thread = held(layout, sums, itemsize)
    of_scheduler = -(-layout.units * layout.lanes // (WARP * SCHEDULERS))
    there = min(REGISTERS_OF_THREAD, REGISTERS // (WARP * of_scheduler) // 8 * 8) - OF_A_STEP[itemsize]
    there -= max(0, of_thread.sums * itemsize // 4 - FREE_SUMS) * OF_A_SUM
    there -= (layout.walks - 1) * PACK_BYTES // 4  # a pack of what weights are multiplied with, of each
    more = of_thread.packs - there * 4 // PACK_BYTES
    if more <= 0:
        return of_thread.packs
    return max(1, (there - OF_PACKS - more // PACKS_A_REGISTER) * 4 // PACK_BYTES)


def beyond_bytes(layout: Layout) -> int:
    """Bytes of shared memory that weights take, which are the launch's."""
    return layout.beyond * layout.units * layout.lanes * PACK_BYTES


def block_bytes(layout: Layout, sums: Sums, itemsize: int) -> int:
    """Bytes of shared memory of a block: of weights, of two turns of what they are multiplied with, and of
    the rows that are fetched ahead."""
    vectors = 2 * sums.inputs * packs_of(layout, itemsize) * layout.lanes * PACK_BYTES
    ahead = 1 if layout.beyond else 2  # steps
    return beyond_bytes(layout) + vectors + ahead * sums.rows * layout.units * layout.lanes * itemsize


def products_of_thread(layout: Layout, sums: Sums, itemsize: int) -> int:
    """Instructions of a thread for the products with its weights in a step: multiply-adds, and packs that it
    reads of shared memory."""
    of_thread = held(layout, sums, itemsize)
    multiplied = of_thread.packs * PACK_BYTES // itemsize * layout.walks
    return multiplied + of_thread.vectors + layout.beyond

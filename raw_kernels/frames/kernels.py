"""Kernels of a recurrent cell: the frames' CUDA C++ texts, filled with its struct, and their launches."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.frames.places import Sums, beyond_bytes, is_wide, layouts_of_places
from bppsa_cupy.raw_kernels.frames.steps import backward_shares, forward_shares
from bppsa_cupy.raw_kernels.kernel import (
    IN_SHARED_MEMORY,
    MAXIMAL_GRID,
    REALS,
    Kernel,
    Launch,
    LaunchShape,
    Layout,
    Layouts,
    layout_for,
    no_layouts,
    one_thread_per,
    read_parameters,
    read_source,
)

VERBS = ("forward", "backward", "forward_step", "backward_step", "reduce", "fill")

#: Threads of a warp, and of a block at most: with so many a thread may take all 255 registers.
WARP, THREADS = 32, 256
#: Threads of a block of walks within warps: one warp for each of a multiprocessor's four schedulers, whose
#: samples are neighbours in memory.
WALKERS = 128
#: Walks that get a block each: as many as a large GPU has multiprocessors. On a smaller one several of those
#: blocks share one as the walks of a block do.
SPREAD = 128
#: Widths of walks whose threads hold the weights of a unit each.
WIDTHS = (8, 20, 32, 64, 128)
#: The width of a reduction in registers, the threads of its block (few, so that multiprocessors are filled
#: evenly), and the bytes of a thread's columns, before and after a step, at most.
REDUCTION_WIDTH, REDUCERS, COLUMN_BYTES = 20, 64, 640
#: Rows of a thread's tile in reduce_block.cuh, and a block's shared memory where it can do with less.
TILE_ROWS, SHARED_BYTES = 4, 48 * 1024


def make_kernels(form: CellForm, twins: Mapping[str, Callable[..., None]]) -> dict[str, Kernel]:
    """The kernels of a cell by verb, from their twins by verb."""
    shares = {"forward_step": forward_shares(form), "backward_step": backward_shares(form)}
    frames = {
        "forward": walks(form, forward_products, lambda s: 1),
        "backward": walks(form, backward_products, lambda s: -(-s["steps"] // s["chunk"])),
        **{verb: (no_layouts, share.launch) for verb, share in shares.items()},
        "reduce": reductions(form),
        "fill": (no_layouts, fill_launch(form)),
    }
    words = {verb: share.words() for verb, share in shares.items()}
    return {verb: frame(form, verb, words.get(verb, {}), *frames[verb], twins[verb]) for verb in VERBS}


def frame(
    form: CellForm,
    verb: str,
    words: Mapping[str, str],
    layouts: Layouts,
    launch: Launch,
    twin: Callable[..., None],
) -> Kernel:
    """The kernel NAME_VERB: the frame's text with the cell's struct and sizes in it."""
    name, text = f"{form.name}_{verb}", filled(read_source(f"frames/cuda/{verb}.cu"), form, words)
    return Kernel(name, read_parameters(name, text), launch, twin, text, layouts)


def filled(text: str, form: CellForm, others: Mapping[str, str]) -> str:
    """A frame's text with the cell's struct in place of its `#include`, and the cell's numbers and `others`
    in place of the frames' words."""
    words = {
        **others,
        "GATES": str(form.gates),
        "RECURRENT": str(form.sums),
        "STATES": str(form.states),
        "SAVED": str(form.saved),
        "PARAMETERS": str(form.parameters),
        "DELTAS": str(form.deltas),
        "ENTRIES": form.entries,
        "BLOCKS": ", ".join(f"{{{former}, {later}, {dense:d}}}" for former, later, dense in form.blocks),
        "COLUMNS": str(form.columns),
        "TILE_COLUMNS": str(form.tile_columns),
    }
    text = re.sub(rf"\b({'|'.join(words)})\b", lambda word: words[word[1]], text)
    text = re.sub(r"\bCELL_(?=[a-z])", f"{form.name}_", text)
    recurrent = (
        f"const int RECURRENT = {form.sums};\nconst unsigned RECURRENT_BITS = {form.recurrent_bits};\n"
    )
    return text.replace('#include "cell.cuh"\n', f"{form.cuda}\n{recurrent}")


# ---- walks ----


class Products(NamedTuple):
    """The products of a walk's step.

    most    bytes of weights that a thread of one unit holds: fewer on the way back, where a step takes more
            beside them
    outputs, inputs  sums of a step and terms of each, in units of `hidden`
    rows    that a step reads, in units of `hidden`
    """

    most: int
    outputs: int
    inputs: int
    rows: int

    @property
    def sums(self) -> Sums:
        """As places of several units take them."""
        return Sums(self.outputs, self.inputs, self.rows)


def forward_products(form: CellForm) -> Products:
    """Of the way forward: of each recurrent gate a unit's sum over the states."""
    return Products(512, form.sums, 1, form.gates)


def backward_products(form: CellForm) -> Products:
    """Of the way back: a unit's sum over the gradients by all sums."""
    return Products(384, 1, form.sums, form.saved + form.states + 1)


def walks(
    form: CellForm, way: Callable[[CellForm], Products], chunks: Callable[[Mapping[str, Any]], int]
) -> tuple[Layouts, Launch]:
    """The layouts and the launch of walks through so many chunks."""
    products = way(form)

    @functools.cache
    def layouts(real: str, shared_bytes: int) -> tuple[Layout, ...]:
        itemsize = np.dtype(real).itemsize
        narrow = tuple(_in_registers(form, products.most, itemsize))
        return (*narrow, *layouts_of_places(products.sums, narrow[-1].width, itemsize, shared_bytes))

    def launch(s: Mapping[str, Any]) -> LaunchShape:
        hidden, itemsize, batch, pieces = s["hidden"], s["itemsize"], s["batch"], chunks(s)
        layout, count = layout_for(layouts(real_of(itemsize), s["shared_bytes"]), hidden), pieces * batch
        own_blocks = count <= SPREAD or is_wide(layout)
        blocks = count if own_blocks else min(-(-count // layout.walks), MAXIMAL_GRID)
        threads = layout.walks * layout.units * layout.lanes
        return LaunchShape((blocks, 1, 1), (threads, 1, 1), beyond_bytes(layout))

    return layouts, launch


def _in_registers(form: CellForm, most: int, itemsize: int) -> Iterator[Layout]:
    """Layouts whose threads hold weights, at most `most` bytes of them: as few lanes a unit as hold them, as
    far as a block has threads."""
    for width in WIDTHS:
        units, lanes = max(8, 1 << (width - 1).bit_length()), 1
        while form.sums * width * itemsize > lanes * most:
            lanes *= 2
        threads = units * lanes
        if threads <= THREADS:
            yield Layout(width, units, lanes, WALKERS // threads if threads <= WARP else 1)


# ---- reductions ----


def columns_of(form: CellForm, itemsize: int) -> int:
    """Columns that a thread holds in registers."""
    return max(1, form.columns * 4 // itemsize)


def reductions(form: CellForm) -> tuple[Layouts, Launch]:
    """The layouts and the launch of a reduction: threads hold whole columns where they can."""

    def layouts(real: str, shared_bytes: int) -> tuple[Layout, ...]:
        itemsize = np.dtype(real).itemsize
        held = 2 * columns_of(form, itemsize) * form.states * REDUCTION_WIDTH * itemsize
        fits = held <= COLUMN_BYTES
        return (*((Layout(REDUCTION_WIDTH, units=1, walks=REDUCERS),) if fits else ()), IN_SHARED_MEMORY)

    def launch(s: Mapping[str, Any]) -> LaunchShape:
        hidden, itemsize, per_step = s["hidden"], s["itemsize"], 1 if s["per_step"] else 0
        size, chunks = form.states * hidden, max(0, -(-s["steps"] // s["chunk"]) - s["first"])
        if layout_for(layouts(real_of(itemsize), s["shared_bytes"]), hidden).units:
            parts = -(-size // columns_of(form, itemsize)) + per_step
            blocks = -(-chunks * parts * s["batch"] // REDUCERS)
            shared = form.sums * REDUCTION_WIDTH**2 * itemsize
            return LaunchShape((min(blocks, MAXIMAL_GRID), 1, 1), (REDUCERS, 1, 1), shared)
        return _in_blocks(form, chunks * s["batch"], hidden, per_step, itemsize)

    return layouts, launch


def _in_blocks(form: CellForm, maps: int, hidden: int, per_step: int, itemsize: int) -> LaunchShape:
    """The launch whose blocks hold columns in shared memory."""
    rows, size, columns = -(-hidden // TILE_ROWS), form.states * hidden, form.tile_columns

    def bytes_of(tiles: int) -> int:
        reals = tiles * columns * size + form.coefficients * hidden
        return reals * itemsize + tiles * columns * 4

    tiles = min(-(-(size + per_step) // columns), max(1, THREADS // rows))
    while tiles > 1 and bytes_of(tiles) > SHARED_BYTES:
        tiles -= 1
    slices = -(-(size + per_step) // (tiles * columns))
    return LaunchShape((min(maps * slices, MAXIMAL_GRID), 1, 1), (rows, tiles, 1), bytes_of(tiles))


# ---- fills ----


def fill_launch(form: CellForm) -> Launch:
    """A thread an entry."""
    entries = compile(form.entries, "<entries>", "eval")
    return lambda s: one_thread_per(s["steps"] * eval(entries, {"hidden": s["hidden"]}) * s["batch"])


def real_of(itemsize: int) -> str:
    """The dtype of a real of `itemsize` bytes."""
    return next(real for real in REALS if np.dtype(real).itemsize == itemsize)

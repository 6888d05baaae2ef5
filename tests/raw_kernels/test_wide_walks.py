"""Walks of wide layers: layouts and their limits, values on the emulator, and machine code.

A walk goes by a whole block, whose places take several units each, or by thread-block clusters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from emulator.device import EmulatedDevice, RaceDevice, load
from executors import make_device
from marks import some_rows
from nvrtc import measure, nvrtc
from timescan_cases import placed, random_walk
from tolerances import assert_close

from bppsa_cupy.cells import Cell, sigmoid
from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames import clusters, places
from bppsa_cupy.raw_kernels.frames.clusters import (
    cluster_kernel,
    layout_of_clusters,
    layouts_of_clusters,
    sums_of,
)
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.frames.grids import SHARES, grid_kernel, products_of, tile_of
from bppsa_cupy.raw_kernels.frames.places import is_wide
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import Kernel, Layout, Variant, layout_for
from bppsa_cupy.timescan import Walk, WalkSize, serial

VERBS = ("forward", "backward")
THERE = ARCHITECTURES["sm_90"].shared_bytes


def leaky(x: Any, u: Any, s: Any, p: Any) -> dict[str, Any]:
    """Three gates, two states of which either is carried beside W_hh, and a number a unit."""
    f, o = sigmoid(x.f + u.f + p.a * s.m), sigmoid(x.o + u.o)
    m = f * s.m + (1 - f) * (x.c + o * u.c)
    return {"h": o * m / (1 + m**2) + s.h / 4, "m": m}


OWN = Cell("leaky", gates=["f", "c", "o"], states=["h", "m"], parameters=["a"], step=leaky).form
CELLS = {**{name: FORMS[name] for name in ("rnn_tanh", "gru", "lstm")}, "leaky": OWN}


def passes(
    device: Device, walk: Walk, per_step: bool, chunk: int, kernels: Mapping[str, Kernel]
) -> list[np.ndarray]:
    """State, kept rows, final state, delta and entering gradients of a walk in blocks, or by `kernels`."""
    rng, size = np.random.default_rng(1), walk.size
    shape = (3, size.hidden, size.batch)
    gradient = placed(device, rng.standard_normal(shape).astype(np.float32)) if per_step else None
    ends = rng.standard_normal((size.chunks(chunk), *walk.initial.shape)).astype(np.float32)
    delta = device.empty_walk((3, size.cell.deltas * size.hidden, size.batch), np.float32)
    entering = device.empty_walk(ends.shape, np.float32)
    serial.forward_in_blocks(device, walk, kernels.get("forward"))()
    serial.backward_in_blocks(
        device, walk, gradient, placed(device, ends), chunk, delta, entering, kernel=kernels.get("backward")
    )()
    return [device.to_host(a) for a in (walk.state, walk.gates, walk.final, delta, entering)]


def assert_same(
    device: Device, form: CellForm, hidden: int, batch: int, reverse: bool, per_step: bool,
    chunk: int, kernels: Mapping[str, Kernel] = {},
) -> None:  # fmt: skip
    """What `device` gives, by its own kernels or these, is what the host gives."""
    size = WalkSize(form, 3, batch, hidden, 4)
    ours, wanted = (
        passes(d, random_walk(d, size, reverse, batch > 1), per_step, chunk, taken)
        for d, taken in ((device, kernels), (get_device("host"), {}))
    )
    names = ("state", "gates", "final", "delta", "entering")
    for name, actual, expected in zip(names, ours, wanted, strict=True):
        assert_close(actual, expected, length=64 * hidden, label=name)


# ---- layouts ----

#: The widest layers of float32 that one launch walks at least, either way.
WIDEST_OF_BLOCKS = {
    "sm_75": {"rnn_tanh": 224, "gru": 128, "lstm": 96},
    "sm_90": {"rnn_tanh": 288, "gru": 160, "lstm": 140},
}
#: Those that clusters of 16 blocks, and of 8, walk either way.
WIDEST_OF_CLUSTERS = {"rnn_tanh": (1152, 832), "gru": (640, 480), "lstm": (512, 384)}


def in_blocks(form: CellForm, verb: str, real: str, architecture: str) -> tuple[Layout, ...]:
    return kernels_of(form)[verb].layouts(real, ARCHITECTURES[architecture].shared_bytes)


def in_clusters(cell: str, verb: str, hidden: int, blocks: int = 16, itemsize: int = 4) -> tuple[Layout, ...]:
    return layouts_of_clusters(sums_of(CELLS[cell], verb), hidden, itemsize, THERE, blocks)


@pytest.mark.parametrize("verb", VERBS)
def test_layers_are_walked_as_wide_as_is_told(verb: str) -> None:
    for architecture, widest in WIDEST_OF_BLOCKS.items():
        for cell, width in widest.items():
            assert in_blocks(FORMS[cell], verb, "float32", architecture)[-1].width >= width, cell
    for cell, widths in WIDEST_OF_CLUSTERS.items():
        for blocks, width in zip((16, 8), widths, strict=True):
            assert in_clusters(cell, verb, width, blocks), (cell, blocks)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("cell, real", [("rnn_tanh", "float32"), ("lstm", "float64"), ("gru", "cluster")])
def test_a_block_takes_what_was_counted(cell: str, real: str, verb: str) -> None:
    """The shared memory that a launch asks for and that of the text, of the widest layout."""
    make_device("emulated")  # skips where there is no g++
    sums, there, by_cluster = sums_of(FORMS[cell], verb), ARCHITECTURES["sm_90"], real == "cluster"
    variant = Variant("float32" if by_cluster else real)
    if by_cluster:
        layout, room = in_clusters(cell, verb, 512)[0], clusters.block_bytes
        kernel = cluster_kernel(FORMS[cell], verb, layout)
    else:
        layout, room = in_blocks(FORMS[cell], verb, real, "sm_90")[-1], places.block_bytes
        kernel = kernels_of(FORMS[cell])[verb]
    scalars = {"steps": 2, "hidden": layout.width, "batch": 3, "chunk": 2}
    shape = kernel.launch({**scalars, "itemsize": variant.itemsize, "shared_bytes": there.shared_bytes})
    library = load(kernel, Variant(variant.real, layout=layout), there)
    assert shape.block == (layout.units * layout.lanes, 1, 1) and library.cluster == layout.cluster
    counted = room(layout, sums, variant.itemsize)
    assert shape.shared_bytes + library.static_shared_bytes == counted <= there.shared_bytes


# ---- values ----

#: cell, H, B, reverse, per_step, chunk, architecture, whether races are looked for.
IN_BLOCKS = [
    ("gru", 100, 1, False, True, 3, "sm_75", True),
    ("rnn_tanh", 192, 4, True, False, 2, "sm_75", False),
    ("lstm", 128, 1, True, True, 3, "sm_90", False),
    *((cell, hidden, batch, batch > 1, batch == 1, 2, "sm_90", True)
      for cell, hidden in (("rnn_tanh", 130), ("gru", 128), ("lstm", 100), ("leaky", 128))
      for batch in (1, 4)),
    ("rnn_tanh", 288, 1, False, True, 3, "sm_90", True),
    ("gru", 160, 4, True, True, 1, "sm_90", True), ("lstm", 140, 1, False, False, 3, "sm_90", True),
    ("leaky", 160, 1, False, True, 3, "sm_90", True),
]  # fmt: skip


@pytest.mark.parametrize(
    "cell, hidden, batch, reverse, per_step, chunk, architecture, races",
    some_rows(long=IN_BLOCKS),
)
def test_blocks_give_what_the_host_gives(
    cell: str, hidden: int, batch: int, reverse: bool, per_step: bool, chunk: int,
    architecture: str, races: bool,
) -> None:  # fmt: skip
    make_device("emulated")
    device = RaceDevice((2,), architecture) if races else EmulatedDevice(architecture)
    for verb in VERBS:
        layouts = in_blocks(CELLS[cell], verb, "float32", architecture)
        assert is_wide(layout_for(layouts, hidden)), verb
    assert_same(device, CELLS[cell], hidden, batch, reverse, per_step, chunk)


#: cell, H, B, reverse, per_step, chunk, and the layout, which serves both ways.
SMALL = [
    ("gru", 20, 3, False, True, 3, Layout(32, 4, 8, 2, 1, 2)),
    ("leaky", 20, 4, True, True, 2, Layout(32, 4, 8, 1, 0, 4)),
]


def kernels_by(cell: str, layouts: Mapping[str, Layout]) -> dict[str, Kernel]:
    return {verb: cluster_kernel(CELLS[cell], verb, layout) for verb, layout in layouts.items()}


@pytest.mark.parametrize("cell, hidden, batch, reverse, per_step, chunk, layout", some_rows(long=SMALL))
def test_small_clusters_give_what_the_host_gives(
    cell: str, hidden: int, batch: int, reverse: bool, per_step: bool, chunk: int, layout: Layout
) -> None:
    make_device("emulated")
    device, taken = RaceDevice((2,), "sm_90"), kernels_by(cell, dict.fromkeys(VERBS, layout))
    assert_same(device, CELLS[cell], hidden, batch, reverse, per_step, chunk, taken)


def chosen(cell: str, hidden: int, batch: int, architecture: str = "sm_90") -> dict[str, Layout]:
    """The layouts that are taken on a GPU with an architecture's limits and 132 multiprocessors."""
    limits, layouts = ARCHITECTURES[architecture], {}
    for verb in VERBS:
        sums = sums_of(CELLS[cell], verb)
        every = layouts_of_clusters(sums, hidden, 4, limits.shared_bytes, limits.cluster_blocks)
        if layout := layout_of_clusters(every, sums, 4, batch, 132):
            layouts[verb] = layout
    return layouts


#: Wide layers: cell, H, B.
WIDE = [
    ("lstm", 192, 1), ("lstm", 256, 16), ("lstm", 512, 1), ("lstm", 512, 16), ("gru", 192, 4),
    ("gru", 512, 16), ("rnn_tanh", 384, 4), ("rnn_tanh", 512, 16), ("rnn_tanh", 1024, 1), ("leaky", 200, 4),
    ("leaky", 256, 64),
]  # fmt: skip


@pytest.mark.parametrize(
    "executor",
    [pytest.param("emulated", marks=pytest.mark.long), pytest.param("cuda", marks=pytest.mark.gpu)],
)
@pytest.mark.parametrize("cell, hidden, batch", WIDE)
def test_wide_clusters_give_what_the_host_gives(cell: str, hidden: int, batch: int, executor: str) -> None:
    device = make_device(executor)
    if executor == "emulated":
        # The least layer of all shows the races that the others would.
        device = RaceDevice((2,), "sm_90") if (cell, hidden) == ("lstm", 192) else EmulatedDevice("sm_90")
    elif device.cluster_blocks == 1:
        pytest.skip("the GPU has no thread-block clusters")
    taken = kernels_by(cell, chosen(cell, hidden, batch))
    assert taken.keys() == set(VERBS)
    # A walk has 4 samples at most: the layouts are those of so many.
    assert_same(device, CELLS[cell], hidden, min(batch, 4), batch > 1, True, 3, taken)


# ---- grids ----

#: cell, H, B, reverse, per_step, blocks of the grid, and those that share out the terms of a sum.
GRIDS = [
    ("lstm", 24, 3, False, True, 4, 1),
    ("gru", 21, 9, True, True, 3, 3),
    ("leaky", 30, 5, True, False, 8, 4),
    ("rnn_tanh", 64, 1, False, True, 4, 2),
    ("rnn_tanh", 40, 40, False, False, 2, 1),
    ("lstm", 16, 70, True, True, 2, 2),
]  # fmt: skip


def grid_kernels(
    cell: str, hidden: int, batch: int, blocks: int, shares: tuple[int, ...] = SHARES
) -> dict[str, Kernel]:
    made = {}
    for verb in VERBS:
        tile = tile_of(*products_of(CELLS[cell], verb), hidden, batch, 4, blocks, THERE, shares)
        assert tile is not None
        made[verb] = grid_kernel(CELLS[cell], verb, tile)
    return made


@pytest.mark.parametrize("cell, hidden, batch, reverse, per_step, blocks, shares", some_rows(long=GRIDS))
def test_grids_give_what_the_host_gives(
    cell: str, hidden: int, batch: int, reverse: bool, per_step: bool, blocks: int, shares: int
) -> None:
    make_device("emulated")
    taken = grid_kernels(cell, hidden, batch, blocks, (shares,))
    assert_same(RaceDevice((2,), "sm_90"), CELLS[cell], hidden, batch, reverse, per_step, 3, taken)


#: The widest layers whose weights 132 multiprocessors of an H100 hold: cell, H, B.
WIDEST_OF_GRIDS = [("rnn_tanh", 2048, 64), ("gru", 1500, 64), ("lstm", 1300, 16), ("lstm", 1024, 1)]


@pytest.mark.parametrize("cell, hidden, batch", WIDEST_OF_GRIDS)
def test_an_h100_holds_the_weights_of_wide_layers(cell: str, hidden: int, batch: int) -> None:
    for kernel in grid_kernels(cell, hidden, batch, 132).values():
        shape = kernel.launch({"hidden": hidden, "itemsize": 4})
        assert shape.grid[0] <= 132 and shape.shared_bytes <= THERE


@pytest.mark.long
@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is missing")
@pytest.mark.parametrize("cell, hidden, batch", WIDEST_OF_GRIDS)
def test_no_step_of_a_grid_spills(cell: str, hidden: int, batch: int) -> None:
    for kernel in grid_kernels(cell, hidden, batch, 132).values():
        usage = measure(kernel.source(Variant()), kernel.name, Variant(), "sm_90")
        assert usage.spill_bytes == 0, usage


@pytest.mark.long
@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is missing")
@pytest.mark.parametrize(
    "target, cell, hidden, batch",
    [*(("sm_90", *wide) for wide in WIDE), *(("sm_120", *wide) for wide in WIDE[3::3])],
)
def test_no_step_of_a_cluster_spills(target: str, cell: str, hidden: int, batch: int) -> None:
    """A few bytes may spill outside the loop over steps."""
    for verb, layout in chosen(cell, hidden, batch, target).items():
        kernel, variant = cluster_kernel(CELLS[cell], verb, layout), Variant(layout=layout)
        usage = measure(kernel.source(variant), kernel.name, variant, target)
        assert usage.spill_bytes <= 16 * (target == "sm_120"), usage

"""Walks by whole blocks, whose places take several units each: layouts, and values on the emulator."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.device import EmulatedDevice, RaceDevice, load
from executors import make_device
from wide_walks import CELLS, assert_same

from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.frames.kernels import Products, backward_products, forward_products
from bppsa_cupy.raw_kernels.frames.places import (
    MOST_SUMS,
    Sums,
    block_bytes,
    held,
    is_wide,
    layouts_of_places,
    resident_packs,
)
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import REALS, Layout, Variant, layout_for

WAYS = {"forward": forward_products, "backward": backward_products}
#: The widest layers of float32 that one launch walks at least, either way.
WIDEST = {
    "sm_75": {"rnn_tanh": 224, "gru": 128, "lstm": 96},
    "sm_80": {"rnn_tanh": 256, "gru": 160, "lstm": 128},
    "sm_86": {"rnn_tanh": 256, "gru": 128, "lstm": 128},
    "sm_90": {"rnn_tanh": 288, "gru": 160, "lstm": 140},
}


def layouts(form: CellForm, verb: str, real: str, architecture: str) -> tuple[Layout, ...]:
    return kernels_of(form)[verb].layouts(real, ARCHITECTURES[architecture].shared_bytes)


@pytest.mark.parametrize("architecture", WIDEST)
def test_one_launch_walks_layers_as_wide_as_a_block_holds(architecture: str) -> None:
    for cell, width in WIDEST[architecture].items():
        for verb in WAYS:
            wide = [one for one in layouts(FORMS[cell], verb, "float32", architecture) if is_wide(one)]
            assert wide[-1].width >= width, (cell, verb)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("verb", WAYS)
@pytest.mark.parametrize("cell", FORMS)
def test_layouts_ascend_and_fit(cell: str, verb: str, architecture: str) -> None:
    there = ARCHITECTURES[architecture].shared_bytes
    for real in REALS:
        found = layouts(FORMS[cell], verb, real, architecture)
        widths = [layout.width for layout in found]
        assert widths == sorted(set(widths))
        sums, itemsize = WAYS[verb](FORMS[cell]).sums, np.dtype(real).itemsize
        for layout in filter(is_wide, found):
            of_thread, threads = held(layout, sums, itemsize), layout.units * layout.lanes
            assert of_thread.own <= layout.lanes and of_thread.sums <= MOST_SUMS and threads % 32 == 0
            in_registers = of_thread.packs - layout.beyond
            assert 0 < in_registers == resident_packs(layout, sums, itemsize)
            assert block_bytes(layout, sums, itemsize) <= there
            assert layout_for(found, layout.width) == layout


def test_what_a_block_holds_is_all_that_its_threads_have_registers_for() -> None:
    """Of 255 registers, or 168 from 257 threads on, 63 are a step's own; more where weights lie beyond."""
    one = Sums(1, 1, 1)
    assert resident_packs(Layout(192, 32, 8), one, 4) == 36, "6 units of 6 packs"
    assert resident_packs(Layout(128, 32, 8), Sums(3, 1, 3), 4) == 48 == (255 - 63) // 4
    assert resident_packs(Layout(256, 32, 8), one, 4) == (255 - 63 - 8 - (64 - 48) // 2) // 4
    assert resident_packs(Layout(288, 36, 8), one, 4) == (168 - 63 - 8 - (72 - 26) // 2) // 4
    assert resident_packs(Layout(256, 32, 8), one, 8) == (255 - 75 - 8 - (128 - 45) // 2) // 4


@pytest.mark.parametrize("verb", WAYS)
def test_no_block_holds_a_layer_that_is_too_wide(verb: str) -> None:
    products: Products = WAYS[verb](FORMS["lstm"])
    assert not list(layouts_of_places(products.sums, 160, 4, ARCHITECTURES["sm_90"].shared_bytes))
    assert not list(layouts_of_places(products.sums, 64, 4, 2048))


@pytest.mark.parametrize("verb", WAYS)
@pytest.mark.parametrize("cell, real", [("rnn_tanh", "float32"), ("lstm", "float64"), ("gru", "float32")])
def test_a_block_takes_what_was_counted(cell: str, real: str, verb: str) -> None:
    """The shared memory that a launch asks for and that of the text, of the widest layout."""
    make_device("emulated")  # skips where there is no g++
    kernel, there = kernels_of(FORMS[cell])[verb], ARCHITECTURES["sm_90"]
    layout, itemsize = layouts(FORMS[cell], verb, real, "sm_90")[-1], np.dtype(real).itemsize
    scalars = {"steps": 2, "hidden": layout.width, "sets": 1, "batch": 3, "walks": 3, "chunk": 2}
    shape = kernel.launch({**scalars, "itemsize": itemsize, "shared_bytes": there.shared_bytes})
    assert shape.grid == (3, 1, 1) and shape.block == (layout.units * layout.lanes, 1, 1)
    library = load(kernel, Variant(real, layout=layout), there)
    counted = block_bytes(layout, WAYS[verb](FORMS[cell]).sums, itemsize)
    assert shape.shared_bytes + library.static_shared_bytes == counted <= there.shared_bytes


#: cell, H, heads, B, reverse, per_step, chunk, architecture, whether races are looked for.
CASES = [
    ("gru", 100, 1, 1, False, True, 3, "sm_75", True),
    *(pytest.param(*case, marks=pytest.mark.long) for case in (
        ("leaky", 192, 2, 4, False, True, 3, "sm_75", False),
        ("rnn_tanh", 192, 1, 4, True, False, 2, "sm_75", False),
        ("lstm", 128, 1, 1, True, True, 3, "sm_90", False),
        *((cell, hidden, 1, batch, batch > 1, batch == 1, 2, "sm_90", True)
          for cell, widths in (("rnn_tanh", (130, 192)), ("gru", (100, 128)), ("lstm", (100, 128)),
                               ("leaky", (100, 128)))
          for hidden in widths for batch in (1, 4)),
        ("rnn_tanh", 288, 1, 1, False, True, 3, "sm_90", True),
        ("rnn_tanh", 224, 1, 4, False, True, 3, "sm_75", False),
        ("gru", 160, 1, 4, True, True, 1, "sm_90", True), ("lstm", 140, 1, 1, False, False, 3, "sm_90", True),
        ("leaky", 160, 1, 1, False, True, 3, "sm_90", True),
    )),
]  # fmt: skip


@pytest.mark.parametrize("cell, hidden, heads, batch, reverse, per_step, chunk, architecture, races", CASES)
def test_it_gives_what_the_host_gives(
    cell: str, hidden: int, heads: int, batch: int, reverse: bool, per_step: bool, chunk: int,
    architecture: str, races: bool,
) -> None:  # fmt: skip
    make_device("emulated")  # skips where there is no g++
    device = RaceDevice((2,), architecture) if races else EmulatedDevice(architecture)
    form = CELLS[cell]
    for verb in WAYS:
        assert is_wide(layout_for(layouts(form, verb, "float32", architecture), hidden // heads)), verb
    assert_same(device, form, hidden, heads, batch, reverse, per_step, chunk)

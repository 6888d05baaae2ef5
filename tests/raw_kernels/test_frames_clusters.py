"""Walks by thread-block clusters: layouts and their limits, values on the emulator, and machine code."""

from __future__ import annotations

import pytest
from emulator.device import EmulatedDevice, RaceDevice, load
from executors import make_device
from marks import some_rows
from nvrtc import measure, nvrtc
from wide_walks import CELLS, assert_same

from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.clusters import (
    MOST_SUMS,
    block_bytes,
    cluster_kernel,
    groups_of,
    layouts_of_clusters,
    step_cycles,
    sums_of,
)
from bppsa_cupy.raw_kernels.frames.places import held
from bppsa_cupy.raw_kernels.kernel import Kernel, Layout, Variant

VERBS = ("forward", "backward")
THERE = ARCHITECTURES["sm_90"].shared_bytes
#: The widest layers of float32 that clusters of 16 blocks, and of 8, walk either way.
WIDEST = {"rnn_tanh": (1152, 832), "gru": (640, 480), "lstm": (512, 384)}


def layouts(cell: str, verb: str, hidden: int, blocks: int = 16, itemsize: int = 4) -> tuple[Layout, ...]:
    return layouts_of_clusters(sums_of(CELLS[cell], verb), hidden, itemsize, THERE, blocks)


def test_clusters_hold_layers_as_wide_as_is_told() -> None:
    for cell, widest in WIDEST.items():
        for blocks, width in zip((16, 8), widest, strict=True):
            found = [all(layouts(cell, verb, h, blocks) for verb in VERBS) for h in range(32, 1600, 32)]
            assert 32 * (1 + max(i for i, fits in enumerate(found) if fits)) == width, (cell, blocks)
            assert all(layout.cluster <= blocks for layout in layouts(cell, "forward", 32, blocks))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("cell", CELLS)
def test_layouts_hold_all_units_and_fit(cell: str, verb: str) -> None:
    for hidden in (100, 192, 500):
        for itemsize in (4, 8):
            for layout in layouts(cell, verb, hidden, itemsize=itemsize):
                sums = sums_of(CELLS[cell], verb)
                of_thread, threads = held(layout, sums, itemsize), layout.units * layout.lanes
                of_block = of_thread.own * layout.units
                assert hidden <= layout.width <= of_block * layout.cluster and threads % 32 == 0
                assert of_block * itemsize % 16 == 0 and of_thread.sums <= MOST_SUMS and threads <= 256
                assert of_thread.own * layout.walks <= layout.lanes and 0 <= layout.beyond < of_thread.packs
                assert block_bytes(layout, sums, itemsize) <= THERE


def kernels(cell: str, layouts: dict[str, Layout]) -> dict[str, Kernel]:
    return {verb: cluster_kernel(CELLS[cell], verb, layout) for verb, layout in layouts.items()}


#: cell, H, heads, B, reverse, per_step, chunk, and the layout, which serves both ways.
SMALL = [
    ("gru", 20, 1, 3, False, True, 3, Layout(32, 4, 8, 2, 1, 2)),
    ("leaky", 40, 2, 4, True, True, 2, Layout(32, 4, 8, 1, 0, 4)),
]


@pytest.mark.parametrize(
    "cell, hidden, heads, batch, reverse, per_step, chunk, layout", some_rows(SMALL[0], long=SMALL[1:])
)
def test_small_clusters_give_what_the_host_gives(
    cell: str, hidden: int, heads: int, batch: int, reverse: bool, per_step: bool, chunk: int, layout: Layout
) -> None:
    make_device("emulated")  # skips where there is no g++
    device, taken = RaceDevice((2,), "sm_90"), kernels(cell, dict.fromkeys(VERBS, layout))
    assert_same(device, CELLS[cell], hidden, heads, batch, reverse, per_step, chunk, taken)


def chosen(cell: str, hidden: int, batch: int, architecture: str = "sm_90") -> dict[str, Layout]:
    """The layouts with the fewest cycles per step, of a GPU with an architecture's limits and 132
    multiprocessors in groups of 16."""
    one, found = ARCHITECTURES[architecture], {}
    for verb in VERBS:
        sums = sums_of(CELLS[cell], verb)
        every = layouts_of_clusters(sums, hidden, 4, one.shared_bytes, one.cluster_blocks)
        cycles = {
            layout: -(-groups_of(layout, 1, batch) // (8 * (16 // layout.cluster)))
            * step_cycles(layout, sums, 4)
            for layout in every
        }
        if cycles:
            found[verb] = min(cycles, key=lambda layout: cycles[layout])
    return found


#: Wide layers: cell, H, B, and whether races are looked for.
WIDE = [
    ("lstm", 192, 1, True), ("lstm", 256, 16, False), ("lstm", 512, 1, False), ("lstm", 512, 16, False),
    ("gru", 192, 4, True), ("gru", 256, 1, False), ("gru", 512, 16, False), ("rnn_tanh", 384, 4, True),
    ("rnn_tanh", 512, 16, False), ("rnn_tanh", 1024, 1, False), ("leaky", 200, 4, True),
    ("leaky", 256, 64, False),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("cell, hidden, batch, races", WIDE)
def test_wide_clusters_give_what_the_host_gives(cell: str, hidden: int, batch: int, races: bool) -> None:
    make_device("emulated")
    device = RaceDevice((2,), "sm_90") if races else EmulatedDevice("sm_90")
    # A walk has 4 samples at most: the layouts are those of so many.
    taken = kernels(cell, chosen(cell, hidden, batch))
    assert taken.keys() == set(VERBS)
    assert_same(device, CELLS[cell], hidden, 1, min(batch, 4), batch > 1, True, 3, taken)


@pytest.mark.gpu
@pytest.mark.parametrize("cell, hidden, batch, _", WIDE)
def test_wide_clusters_on_a_gpu_give_what_the_host_gives(cell: str, hidden: int, batch: int, _: bool) -> None:
    if (device := make_device("cuda")).cluster_blocks == 1:
        pytest.skip("the GPU has no thread-block clusters")
    taken = kernels(cell, chosen(cell, hidden, batch))
    assert_same(device, CELLS[cell], hidden, 1, min(batch, 4), batch > 1, True, 3, taken)


@pytest.mark.parametrize("verb", VERBS)
def test_a_block_takes_what_was_counted(verb: str) -> None:
    make_device("emulated")
    (layout,) = layouts("gru", verb, 512)[:1]
    kernel, sums = cluster_kernel(FORMS["gru"], verb, layout), sums_of(FORMS["gru"], verb)
    sizes = {"steps": 2, "hidden": 512, "sets": 1, "batch": 3, "walks": 3, "chunk": 2, "itemsize": 4}
    shape = kernel.launch({**sizes, "shared_bytes": THERE})
    assert shape.grid == (-(-3 // layout.walks) * layout.cluster, 1, 1)
    library = load(kernel, Variant(layout=layout), ARCHITECTURES["sm_90"])
    assert library.cluster == layout.cluster
    counted = block_bytes(layout, sums, 4)
    assert shape.shared_bytes + library.static_shared_bytes == counted <= THERE


@pytest.mark.long
@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is missing")
@pytest.mark.parametrize("target", ["sm_90", "sm_120"])
@pytest.mark.parametrize("cell, hidden, batch", [case[:3] for case in WIDE])
def test_no_step_spills(cell: str, hidden: int, batch: int, target: str) -> None:
    """A few bytes may spill outside the loop over steps."""
    for verb, layout in chosen(cell, hidden, batch, target).items():
        kernel, variant = cluster_kernel(CELLS[cell], verb, layout), Variant(layout=layout)
        usage = measure(kernel.source(variant), kernel.name, variant, target)
        assert usage.spill_bytes <= 16 * (target == "sm_120"), usage

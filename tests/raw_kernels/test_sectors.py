"""32-byte sectors per access of a warp to what walks write, counted on the emulator by their addresses."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.device import RaceDevice, load
from emulator.text_kernel import array_out, text_kernel
from executors import make_device

from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Variant

pytestmark = pytest.mark.long


@pytest.fixture
def racing() -> RaceDevice:
    make_device("emulated")  # skips where there is no g++
    device = RaceDevice(seeds=())
    device.orders = device.orders[:1]
    return device


@pytest.mark.parametrize(
    "place, sectors", [("i", 4), ("i * 8", 32), ("i + 1", 5), ("i / 8 * 40 + i % 8", 4), ("i * 2", 8)]
)
def test_sectors_are_counted(racing: RaceDevice, place: str, sectors: int) -> None:
    body = f"const int i = threadIdx.x; out[{place}] = 1;"
    kernel = text_kernel(body, array_out("out", "int32", "256"), block=32)
    library = load(kernel, Variant(), racing.architecture, True)
    library.count_sectors()
    racing.launch(kernel, np.zeros(256, np.int32))
    assert library.sectors("out") == (1, sectors)
    library.count_sectors(False)


#: Cell, hidden size: walks within a warp, by places of one lane, of several, and of several units.
WALKS = [("rnn_tanh", 20), ("gru", 20), ("lstm", 20), ("gru", 64), ("lstm", 64), ("lstm", 128)]


@pytest.mark.parametrize("name, hidden", WALKS)
@pytest.mark.parametrize("verb", ["forward", "backward"])
def test_walks_write_neighbours(racing: RaceDevice, name: str, hidden: int, verb: str) -> None:
    """Neighbouring lanes write neighbours: as few sectors as hold them, and one more off alignment. With
    samples innermost each of a warp's 16 to 32 units would have a sector of its own."""
    kernel, batch, steps = KERNELS[f"{name}_{verb}"], 16, 2
    scalars = {"steps": steps, "hidden": hidden, "sets": 1, "batch": batch, "walks": batch, "chunk": steps}
    given, rng = [], np.random.default_rng(0)
    for parameter in kernel.parameters:
        if not parameter.is_array:
            given.append(scalars.get(parameter.name, 0))
            continue
        size = eval(parameter.size, {}, {**scalars, "per_step": 0, "guarded": 0})
        drawn = rng.standard_normal(size).astype(np.float32)
        given.append(np.full(size, steps) if parameter.name == "lengths" else
                     drawn.astype(np.int32) if parameter.type == "int32" else drawn)  # fmt: skip
    facts = racing.facts_of_launch(scalars | {"per_step": 0}, 4)
    library = load(kernel, kernel.variant_for(Variant(), facts), racing.architecture, True)
    library.count_sectors()
    racing.launch(kernel, *given)
    written = next(p for p in kernel.parameters if p.name == ("state" if verb == "forward" else "delta"))
    phases, sectors = library.sectors(written.name)
    library.count_sectors(False)
    assert 0 < phases and sectors <= eval(written.size, {}, scalars) / 8 + phases

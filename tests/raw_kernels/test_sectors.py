"""32-byte sectors per access of a warp to what walks read and write, counted on the emulator by addresses."""

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


#: Arrays over time that a walk reads and writes.
ARRAYS = {"forward": (("projected",), ("state", "gates")), "backward": (("gates", "state"), ("delta",))}
#: Cell, units, direction: sectors read and written per sample and step, first samples,
#: then units innermost. Reads by asynchronous copies are not counted.
WALKS = {
    ("rnn_tanh", 20, "forward"): (0, 20, 0, 3), ("rnn_tanh", 20, "backward"): (0, 20, 0, 3),
    ("gru", 64, "forward"): (0, 320, 0, 40), ("gru", 64, "backward"): (0, 256, 0, 32),
    ("lstm", 64, "forward"): (0, 384, 0, 48), ("lstm", 64, "backward"): (32, 256, 4, 32),
}  # fmt: skip


@pytest.mark.parametrize("name, hidden, verb", WALKS)
def test_walks_use_whole_sectors(racing: RaceDevice, name: str, hidden: int, verb: str) -> None:
    kernel, batch, steps = KERNELS[f"{name}_{verb}"], 16, 2
    scalars = {"steps": steps, "hidden": hidden, "batch": batch, "chunk": steps}
    scalars["per_step"] = int(verb == "backward")
    arguments, rng = [], np.random.default_rng(0)
    for parameter in kernel.parameters:
        if not parameter.is_array:
            arguments.append(scalars.get(parameter.name, 0))
            continue
        size = eval(parameter.size, {}, {**scalars, "guarded": 0})
        drawn = rng.standard_normal(size).astype(np.float32)
        arguments.append(np.full(size, steps) if parameter.name == "lengths" else
                     drawn.astype(np.int32) if parameter.type == "int32" else drawn)  # fmt: skip
    facts = racing.facts_of_launch(scalars, 4)
    library = load(kernel, kernel.variant_for(Variant(), facts), racing.architecture, True)
    sizes, sectors = {p.name: p.size for p in kernel.parameters}, []
    for samples_innermost in (True, False):
        library.count_sectors()
        for array in sum(ARRAYS[verb], ()) if samples_innermost else ():
            library.turn(array, batch, eval(sizes[array], {}, scalars) // (steps * batch))
        racing.launch(kernel, *arguments)
        for arrays in ARRAYS[verb]:
            sectors.append(sum(library.sectors(array)[1] for array in arrays) / (batch * steps))
    library.count_sectors(False)
    assert tuple(sectors) == WALKS[name, hidden, verb]

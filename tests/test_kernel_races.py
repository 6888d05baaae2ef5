"""No kernel has a race: each runs on a few small cases on the emulated device that finds races."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import make_device
from emulator.build import EmulationError
from emulator.device import LEAST, RaceDevice
from kernel_cases import CASES, arguments

from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.kernels import VERBS
from bppsa_cupy.raw_kernels.kernel import IN_MEMORY, Kernel, Variant

#: The cell whose kernels run in every layout: the frames are the same for all.
IN_EVERY_LAYOUT = "gru"
OF_CELLS = {f"{name}_{verb}" for name in FORMS for verb in VERBS if name != IN_EVERY_LAYOUT}
#: Elements of a launch's arrays at most: larger ones have no other races, and take longer.
ELEMENTS = 120_000


@pytest.fixture
def racing() -> RaceDevice:
    make_device("emulated")  # skips where there is no g++
    return RaceDevice(seeds=(2,))


def cases_of(kernel: Kernel) -> list[list[object]]:
    """Arguments of the launches to look at: some small ones; of a kernel with layouts one in each, of a cell
    whose frames another one shows one at all."""
    rng = np.random.default_rng(20240229)
    taken: dict[object, list[object]] = {}
    for number, case in enumerate(CASES[kernel.name](rng)):
        values = arguments(kernel, Variant(), case, rng)
        if sum(value.size for value in values if isinstance(value, np.ndarray)) > ELEMENTS:
            continue
        given = {**case.scalars, "shared_bytes": ARCHITECTURES[LEAST].shared_bytes}
        layout = kernel.variant_for(Variant(), given).layout
        key = "any" if kernel.name in OF_CELLS else layout if layout != IN_MEMORY else number % 6
        taken[key] = values
    return list(taken.values())


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_has_no_race(name: str, racing: RaceDevice) -> None:
    taken = cases_of(KERNELS[name])
    assert taken
    for values in taken:
        racing.launch(KERNELS[name], *values)


def test_a_barrier_that_is_taken_away_is_missed(racing: RaceDevice) -> None:
    """What the kernels' own barriers order is seen: without its first one a kernel has a race."""
    kernel = KERNELS["batch_norm_weight_gradient"]
    text = kernel.source(Variant()).replace("__syncthreads();", "", 1)
    assert text != kernel.source(Variant())
    without = Kernel(kernel.name, kernel.parameters, kernel.launch, kernel.twin, text.split("\n", 2)[2])
    with pytest.raises(EmulationError, match=r"a race on byte .* of shared partial: thread"):
        for values in cases_of(kernel):
            racing.launch(without, *values)

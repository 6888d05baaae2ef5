"""No kernel has a race: each runs on a few small cases on the emulated device that finds races."""

from __future__ import annotations

import pytest
from emulator.build import EmulationError
from emulator.device import RaceDevice
from executors import make_device
from kernel_cases_races import cases_to_race

from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Kernel, Variant

pytestmark = pytest.mark.long


@pytest.fixture
def racing() -> RaceDevice:
    make_device("emulated")  # skips where there is no g++
    return RaceDevice(seeds=(2,))


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_has_no_race(name: str, racing: RaceDevice) -> None:
    taken = cases_to_race(KERNELS[name])
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
        for values in cases_to_race(kernel):
            racing.launch(without, *values)

"""The laws of every kernel pair: signature, values, no race; kernels compile in test_kernels_compile.py."""

from __future__ import annotations

import importlib
import inspect

import numpy as np
import pytest
from emulator.build import sanitizing
from emulator.device import LEAST, RaceDevice
from executors import make_device
from kernel_cases import CASES, arguments
from kernel_cases_time import OWN
from kernel_comparison import assert_same, by_text, by_twin, turned

from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.kernels import VERBS
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import FOLDER, Kernel, Variant
from bppsa_cupy.raw_kernels.linear.kernels import linear_kernels_of
from bppsa_cupy.raw_kernels.linear_cells import LINEAR_FORMS

#: All kernels, and those of some cells that tests define.
PAIRS = {**KERNELS, **{kernel.name: kernel for form in OWN for kernel in kernels_of(form).values()}}
#: Cells whose kernels are compared in float64 and in long runs only: the frames are the same for all.
IN_FLOAT64 = ("rnn_relu", *(form.name for form in OWN))
#: Cells that are compared in long runs only, linear ones too: another one shows their frames.
IN_LONG_RUNS = (*IN_FLOAT64, "mingru", "minlstm", "rglru", "sru")
#: The cell whose kernels run in every layout where races are looked for: the frames are the same for all.
IN_EVERY_LAYOUT = "gru"
OTHERS = {*FORMS, *(form.name for form in OWN)} - {IN_EVERY_LAYOUT}
#: Kernels in which races are looked for in one case.
IN_ONE_CASE = {f"{name}_{verb}" for name in OTHERS for verb in VERBS}


def variants_of(kernel: Kernel) -> list[Variant]:
    """The variants of a kernel that are compared; every run compares the first, in float64."""
    variants = list(dict.fromkeys(Variant(variant.real, variant.index) for variant in kernel.variants()))
    if kernel.name.startswith(IN_FLOAT64):
        variants = [variant for variant in variants if variant.real == "float64"]
    return sorted(variants, key=lambda variant: variant.real, reverse=True)


VARIANTS = [
    pytest.param(
        kernel,
        variant,
        id=f"{name}-{variant.real}-{variant.index}",
        marks=[pytest.mark.long] if number or name.startswith(IN_LONG_RUNS) else [],
    )
    for name, kernel in PAIRS.items()
    for number, variant in enumerate(variants_of(kernel))
]


def test_every_pair_is_listed_once_and_has_cases() -> None:
    of_families = {
        name
        for path in FOLDER.glob("*.cu")
        for name, value in vars(importlib.import_module(f"bppsa_cupy.raw_kernels.{path.stem}")).items()
        if isinstance(value, Kernel)
    }
    of_cells = {f"{name}_{verb}" for name in FORMS for verb in VERBS}
    of_cells |= {kernel.name for form in LINEAR_FORMS.values() for kernel in linear_kernels_of(form).values()}
    assert set(KERNELS) == of_families | of_cells == {kernel.name for kernel in KERNELS.values()}
    assert set(PAIRS) == set(CASES), "kernel_cases.py holds arguments for each kernel, and no others"


@pytest.mark.parametrize("name", PAIRS)
def test_text_and_twin_take_the_same_arguments(name: str) -> None:
    kernel = PAIRS[name]
    twin = getattr(kernel.twin, "py_func", kernel.twin)
    inspect.signature(twin).bind(*kernel.parameters)
    assert name.endswith(twin.__name__)
    assert kernel.text.startswith("// ") and kernel.text.count("__global__") == 1
    scalars = {parameter.name: 1 for parameter in kernel.parameters if not parameter.is_array}
    assert all(eval(p.size, {}, scalars) >= 0 for p in kernel.parameters if p.is_array)


@pytest.mark.parametrize("kernel, variant", VARIANTS)
@pytest.mark.parametrize("executor", ["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_text_computes_what_the_twin_does(
    kernel: Kernel, variant: Variant, executor: str, rng: np.random.Generator
) -> None:
    device = make_device(executor)
    for turn, case in enumerate(CASES[kernel.name](rng)):
        inputs = arguments(kernel, variant, case, rng)
        # Under sanitizers what is asked is a clean launch; to compile the twins would take longest.
        expected = None if sanitizing() else by_twin(kernel, variant, inputs)
        actual = by_text(kernel, device, inputs, turn)
        if expected is not None:
            assert_same(kernel, actual, expected, case.scalars)


def cases_to_race(kernel: Kernel) -> list[list[object]]:
    """Arguments in which races are looked for: some small cases; one per layout of a kernel with layouts."""
    rng = np.random.default_rng(20240229)
    taken: dict[object, list[object]] = {}
    for number, case in enumerate(CASES[kernel.name](rng)):
        values = arguments(kernel, Variant(), case, rng)
        if sum(value.size for value in values if isinstance(value, np.ndarray)) > 120_000:
            continue
        scalars = {**case.scalars, "shared_bytes": ARCHITECTURES[LEAST].shared_bytes}
        layout = kernel.variant_for(Variant(), scalars).layout
        key = "any" if kernel.name in IN_ONE_CASE else layout if layout.width else number % 6
        taken[key] = turned(kernel, values)
    return list(taken.values())


@pytest.fixture
def racing() -> RaceDevice:
    make_device("emulated")  # skips where there is no g++
    return RaceDevice(seeds=(2,))


@pytest.mark.long
@pytest.mark.parametrize("name", PAIRS)
def test_the_kernel_has_no_race(name: str, racing: RaceDevice) -> None:
    taken = cases_to_race(PAIRS[name])
    assert taken
    for values in taken:
        racing.launch(PAIRS[name], *values)

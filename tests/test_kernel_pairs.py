"""Every kernel pair: the CUDA text and the Numba twin agree in signature, in documentation and in values."""

from __future__ import annotations

import importlib
import inspect
import re

import numpy as np
import pytest
from emulator.build import sanitizing
from kernel_cases import CASES, arguments
from tolerances import assert_close

from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import FOLDER, Kernel, Variant

VARIANTS = [
    pytest.param(kernel, variant, id=f"emulated-{name}-{variant.real}-{variant.index}")
    for name, kernel in KERNELS.items()
    for variant in kernel.variants()
]
ROLES = {"in": r"input(?! and)", "out": "output only", "inout": "input and output"}


def test_every_pair_is_listed_once() -> None:
    with_kernel = {path.stem for path in FOLDER.glob("*.py") if "\nKERNEL = " in path.read_text()}
    assert set(KERNELS) == with_kernel == {kernel.name for kernel in KERNELS.values()}


def test_every_kernel_has_cases() -> None:
    assert set(KERNELS) == set(CASES), "tests/kernel_cases.py holds arguments for each kernel, and no others"


@pytest.mark.parametrize("name", KERNELS)
def test_the_text_declares_the_parameters(name: str) -> None:
    text = (FOLDER / f"{name}.cu").read_text()
    entries = re.findall(
        r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(([^)]*)\)', text
    )
    assert len(entries) == text.count("__global__") == 1, f"{name}.cu has one entry"
    found, declared = entries[0]
    assert found == name
    assert [" ".join(one.split()) for one in declared.split(",")] == [
        parameter.declaration() for parameter in KERNELS[name].parameters
    ]


@pytest.mark.parametrize("name", KERNELS)
def test_the_twin_takes_the_parameters(name: str) -> None:
    kernel = KERNELS[name]
    taken = inspect.signature(kernel.twin.py_func).parameters
    assert list(taken) == [parameter.name for parameter in kernel.parameters]
    assert kernel.twin.py_func.__name__ == name


@pytest.mark.parametrize("name", KERNELS)
def test_the_pair_is_documented(name: str) -> None:
    assert importlib.import_module(f"bppsa_cupy.raw_kernels.{name}").__doc__
    comments = [line for line in (FOLDER / f"{name}.cu").read_text().splitlines() if line.startswith("//")]
    for parameter in KERNELS[name].parameters:
        if parameter.is_array:
            line = re.compile(rf"//   .*\b{parameter.name}\b.*\(.*\).*\b{ROLES[parameter.role]}")
            assert any(map(line.match, comments)), f"{name}.cu says the size and role of {parameter.name}"


def cast_index(value: object, variant: Variant) -> object:
    """A copy of an array, in the variant's index dtype if it is one of indices; scalars as they are."""
    if not isinstance(value, np.ndarray):
        return value
    return value.astype(variant.index if value.dtype.kind == "u" and value.itemsize >= 4 else value.dtype)


@pytest.mark.parametrize("kernel, variant", VARIANTS)
def test_the_text_computes_what_the_twin_does(
    kernel: Kernel, variant: Variant, emulated: Device, rng: np.random.Generator
) -> None:
    host = get_device("host")
    # The width of an index changes no value; one variant of the twin less to compile.
    of_twin = variant if variant.real == "float64" else Variant(variant.real)
    for case in CASES[kernel.name](rng):
        given = arguments(kernel, variant, case, rng)
        expected = [cast_index(value, of_twin) for value in given]
        emulated.launch(kernel, *given)
        if sanitizing():  # what is asked then is a clean launch; to compile the twins would take longest
            continue
        host.launch(kernel, *expected)
        for parameter, actual, wanted in zip(kernel.parameters, given, expected, strict=True):
            if parameter.is_array:
                assert_close(actual, wanted, length=256, what=f"{parameter.name} with {case.scalars}")

"""Every kernel pair: the CUDA text and the Numba twin agree in signature, in documentation and in values."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from emulator.build import sanitizing
from executors import make_device
from kernel_cases import CASES, arguments
from kernel_comparison import assert_same, by_text, by_twin

from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.kernels import VERBS
from bppsa_cupy.raw_kernels.kernel import FOLDER, IN_MEMORY, Kernel, Parameter, Variant, read_parameters
from bppsa_cupy.raw_kernels.linear.kernels import linear_kernels_of
from bppsa_cupy.raw_kernels.linear_cells import LINEAR_FORMS

#: Cells whose kernels are compared in float64 alone, the frames being the same for all, and in long runs
#: alone: every run has their texts in test_frames_cuda.py, and their twins among layers.
IN_FLOAT64 = ("rnn_relu", "ctrnn", "mgu", "ugrnn", "peephole_lstm")


def variants_of(kernel: Kernel) -> list[Variant]:
    """Those of a kernel that are compared, float64 first: in every run the first, which other rooms' oracles
    take too."""
    found = [variant for variant in kernel.variants() if variant.layout == IN_MEMORY]
    if kernel.name.startswith(IN_FLOAT64):
        found = [variant for variant in found if variant.real == "float64"]
    return sorted(found, key=lambda variant: variant.real, reverse=True)


VARIANTS = [
    pytest.param(
        kernel,
        variant,
        id=f"{name}-{variant.real}-{variant.index}",
        marks=[pytest.mark.long] if number or name.startswith(IN_FLOAT64) else [],
    )
    for name, kernel in KERNELS.items()
    for number, variant in enumerate(variants_of(kernel))
]


def test_every_pair_is_listed_once() -> None:
    with_kernel = {
        path.stem for path in FOLDER.glob("*.py") if "\nKERNEL = " in path.read_text(encoding="utf-8")
    }
    of_cells = {f"{name}_{verb}" for name in FORMS for verb in VERBS}
    of_cells |= {kernel.name for form in LINEAR_FORMS.values() for kernel in linear_kernels_of(form).values()}
    assert set(KERNELS) == with_kernel | of_cells == {kernel.name for kernel in KERNELS.values()}


def test_every_kernel_has_cases() -> None:
    assert set(KERNELS) == set(CASES), "kernel_cases.py holds arguments for each kernel, and no others"


@pytest.mark.long
def test_texts_are_read_as_utf_8_whatever_the_locale() -> None:
    code = """
import pkgutil, warnings
import bppsa_cupy
warnings.filterwarnings("error", category=EncodingWarning, module="bppsa_cupy")
for module in pkgutil.walk_packages(bppsa_cupy.__path__, "bppsa_cupy."):
    if not module.name.startswith("bppsa_cupy.tools"):
        try:
            __import__(module.name)
        except ImportError as error:
            assert "pip install" in str(error), error
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Variant
assert all(kernel.source(Variant()) for kernel in KERNELS.values())
"""
    environment = {**os.environ, "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-X", "warn_default_encoding", "-c", code], env=environment, check=True)


PROBE = """
extern "C" __global__ void __launch_bounds__(64) probe(
    const unsigned char* __restrict__ kept,  // (batch, 2 * (features + 1)) if biased else (0): what was kept
    const index_t* __restrict__ map,         // (features // 2 - 1)
    real* __restrict__ values,               // (features, batch) output only, a long
                                             // comment
    int* __restrict__ flag,                  // (1) input and output
    size_type features, size_type batch, int biased, double rate,
    real scale  // a scalar (1)
)
{
}
"""


def test_a_signature_is_read() -> None:
    assert read_parameters("probe", PROBE) == (
        Parameter("kept", "uint8", "in", "(batch) * (2 * (features + 1)) if biased else (0)"),
        Parameter("map", "index", "in", "(features // 2 - 1)"),
        Parameter("values", "real", "out", "(features) * (batch)"),
        Parameter("flag", "int32", "inout", "(1)"),
        *(Parameter(name, "size", "scalar") for name in ("features", "batch")),
        Parameter("biased", "flag", "scalar"),
        Parameter("rate", "double", "scalar"),
        Parameter("scale", "real_value", "scalar"),
    )


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("// (1) input and output", "// a flag", "probe.cu says the shape of flag behind its declaration"),
        ("(1) input and output", "(1)", "probe.cu says the role of flag"),
        ("(features // 2 - 1)", "(features // 2 - 1) output only", "probe.cu says the role of map"),
        ("double rate", "short rate", "probe.cu: no parameter is declared as 'short rate'"),
        (" probe(", " other(", "probe.cu has one entry, probe"),
    ],
)
def test_a_signature_without_shape_role_or_known_type_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(message)):
        read_parameters("probe", PROBE.replace(old, new))


@pytest.mark.parametrize("name", KERNELS)
def test_the_text_has_one_entry(name: str) -> None:
    assert KERNELS[name].text.count("__global__") == 1


@pytest.mark.parametrize("name", KERNELS)
def test_sizes_are_made_of_the_scalars(name: str) -> None:
    scalars = {parameter.name: 1 for parameter in KERNELS[name].parameters if not parameter.is_array}
    for parameter in KERNELS[name].parameters:
        if parameter.is_array:
            assert eval(parameter.size, {}, scalars) >= 0


def twin_of(kernel: Kernel) -> Callable[..., None]:
    """The Python function that the twin is, or that is compiled."""
    return getattr(kernel.twin, "py_func", kernel.twin)


@pytest.mark.parametrize("name", KERNELS)
def test_the_twin_takes_the_parameters(name: str) -> None:
    kernel = KERNELS[name]
    taken = inspect.signature(twin_of(kernel)).parameters
    assert list(taken) == [parameter.name for parameter in kernel.parameters]
    assert name.endswith(twin_of(kernel).__name__)


@pytest.mark.parametrize("name", KERNELS)
def test_the_pair_is_documented(name: str) -> None:
    kernel = KERNELS[name]
    assert importlib.import_module(twin_of(kernel).__module__).__doc__
    assert kernel.text.startswith("// ")


@pytest.mark.parametrize("kernel, variant", VARIANTS)
@pytest.mark.parametrize("executor", ["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_text_computes_what_the_twin_does(
    kernel: Kernel, variant: Variant, executor: str, rng: np.random.Generator
) -> None:
    device = make_device(executor)
    for turn, case in enumerate(CASES[kernel.name](rng)):
        given = arguments(kernel, variant, case, rng)
        # Under sanitizers what is asked is a clean launch; to compile the twins would take longest.
        expected = None if sanitizing() else by_twin(kernel, variant, given)
        found = by_text(kernel, device, given, turn)
        if expected is not None:
            assert_same(kernel, found, expected, case.scalars)

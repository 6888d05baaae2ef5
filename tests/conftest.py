"""Fixtures every test may take: devices, dtypes, random numbers; and the report of compiled kernels."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pytest
from marks import some

if TYPE_CHECKING:
    from bppsa_cupy.devices import Device

# Whether kernels are in the cache changes no output that a test reads, here or in a process it starts.
os.environ.setdefault("BPPSA_QUIET", "1")
# First calls wait for their kernels, so that equal calls have equal bits.
os.environ.setdefault("BPPSA_WAIT", "1")
# Ways on a GPU are those of the fixed table, whatever was measured on this machine.
os.environ.setdefault("BPPSA_AUTOTUNE", "off")
# A shell starts what runs in its background with Ctrl-C ignored, which the tests of interrupts would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiling makes millions of small objects, few of them in circles; to look for those at every 700th takes a
# tenth of the time.
gc.set_threshold(5000, 20, 20)

# A GPU's machine may lack it: tests that draw examples are skipped there, and the others run.
with suppress(ModuleNotFoundError):
    from hypothesis import HealthCheck, settings
    from hypothesis.internal.conjecture import providers

    # Hypothesis mixes constants of the modules imported so far into its examples; which these are depends on
    # the order of the tests and on the checkout's path, and the examples shall not.
    providers._get_local_constants = lambda: providers.Constants()  # type: ignore[attr-defined]

    # The same examples are drawn in every run. The fixtures here hold nothing an example could change, so one
    # per test serves all its examples.
    settings.register_profile(
        "tests",
        max_examples=25,
        derandomize=True,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-targets", action="store_true", help="compile kernels for every GPU generation")


def pytest_sessionstart(session: pytest.Session) -> None:
    """PyTorch is the oracle of small cases, for which threads that wait on each other cost more than they
    give. `make lowest` does without, and so does the process that hands tests to workers."""
    if not session.config.getoption("numprocesses", None):
        with suppress(ModuleNotFoundError):
            import_module("torch").set_num_threads(1)


#: Folders whose tests come first and last. The first of two workers starts with the first half, and compiles
#: most loops over time and convolutions, whose parts each process compiles anew. The other needs them late.
FIRST = (
    "layers", "jacobians", "timescan", "stability", "cells", "functional", "pipeline", "training", "torch",
    "jax",
)  # fmt: skip
LAST = (
    "records", "plan", "models", "network", "devices", "distributed", "laws", "programs", "raw_kernels",
)  # fmt: skip


def place_of(item: pytest.Item) -> int:
    """Where a test stands. Programs over ranks come last, when other tests have compiled their kernels: ranks
    that wait for one that compiles keep a core busy."""
    folder = item.path.parent.name
    if item.path.name == "test_ranks.py":
        return len(LAST)
    return LAST.index(folder) if folder in LAST else (*FIRST, folder).index(folder) - len(FIRST) - 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=place_of)


def pytest_collection_finish() -> None:
    """The tests themselves are there to the end: nothing is looked for among them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def memory_goes_back() -> Iterator[None]:
    """What the C library keeps of a file's freed memory goes back to the system."""
    yield
    with suppress(AttributeError):  # another library than glibc
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(autouse=True)
def pytorchs_seed() -> None:
    """PyTorch's random numbers are the same in every test, whatever ran before it."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(params=["host", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Each device in turn; `-m gpu` selects the cuda runs, `-k emulated` those of the .cu texts on g++."""
    return import_module("executors").make_device(request.param)


@pytest.fixture
def emulated() -> Device:
    """The emulated device alone, for tests of the .cu texts themselves."""
    return import_module("executors").make_device("emulated")


@pytest.fixture(params=some("float64", long=["float32"]))
def dtype(request: pytest.FixtureRequest) -> np.dtype:
    """Each real dtype in turn, in `make test` float64 alone: each kernel is compiled for each dtype anew."""
    return np.dtype(request.param)


@pytest.fixture
def pytorch() -> None:
    """For tests whose subject imports PyTorch by itself."""
    import torch  # noqa: F401


@pytest.fixture(scope="session")
def librosa() -> ModuleType:
    """librosa without its universal functions, which it compiles for 17 s where it is imported first, and of
    which the features take none."""
    module = pytest.importorskip("librosa", reason="features take librosa, of the extra audio")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("guvectorize", "vectorize"):
            patch.setattr(f"numba.{name}", lambda *types, **options: lambda function: function)
        import_module("librosa.feature.spectral")  # and what it takes
    return module


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers that are the same in every run."""
    return np.random.default_rng(20240229)

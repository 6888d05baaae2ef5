"""The .cu texts under AddressSanitizer and UBSan, in child processes that load the sanitizer first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from emulator.build import compiler
from emulator.faults import FAULTS

pytestmark = pytest.mark.long

TESTS = Path(__file__).parents[1]
SUPPORT = str(TESTS / "support")
#: Test files whose emulated runs are repeated: the emulator's own, and every kernel on all its cases.
MODULES = ("emulator/test_emulator.py", "raw_kernels/test_kernel_pairs.py")


def sanitized(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on `arguments` with the sanitizers loaded and kernels compiled for them."""
    program = compiler()
    if program is None:
        pytest.skip("the emulated device needs g++")
    library = subprocess.check_output([program, "-print-file-name=libasan.so"], encoding="utf-8").strip()
    if not os.path.isabs(library):
        pytest.skip("g++ has no AddressSanitizer: install its libasan")
    environment = os.environ | {
        "LD_PRELOAD": library,
        # Python itself keeps memory until it ends, and fibers have no fake stacks.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "UBSAN_OPTIONS": "print_stacktrace=0",
        "BPPSA_EMULATOR_SANITIZE": "1",
        "PYTHONPATH": os.pathsep.join([SUPPORT, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
    }
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, encoding="utf-8", check=False
    )


@pytest.fixture(scope="module")
def fault_reports() -> dict[str, tuple[int, str]]:
    done = sanitized(str(TESTS / "support" / "emulator" / "faults.py"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", FAULTS)
def test_the_sanitizers_see(name: str, fault_reports: dict[str, tuple[int, str]]) -> None:
    status, errors = fault_reports[name]
    words = FAULTS[name][1]
    assert (status != 0) == bool(words), errors
    assert words in errors


def test_kernels_are_clean() -> None:
    done = sanitized(
        *("-m", "pytest", "-qs", "-k", "emulat", "-p", "no:cacheprovider"),
        *(str(TESTS / name) for name in MODULES),
    )
    assert done.returncode == 0, done.stdout + done.stderr

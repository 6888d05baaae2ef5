"""The emulator runs CUDA's language as a GPU does, and finds the mistakes that tests of kernels rely on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from emulator.build import EmulationError, compiler
from emulator.device import EmulatedDevice, RaceDevice
from emulator.text_kernel import array_inout, array_out, text_kernel
from executors import make_device

TESTS = Path(__file__).parents[1]
OUT, GIVEN = array_out("out", "real", "64"), array_inout("given", "real", "64")
SHARED = "__shared__ real held[64]; const int t = threadIdx.x; held[t] = t; "


def run_body(body: str, device: type[EmulatedDevice], **launch: int) -> np.ndarray:
    """The 64 values of `out` that `body` writes."""
    make_device("emulated")  # skips where there is no g++
    out, data = np.zeros(64, np.float32), np.arange(64, dtype=np.float32)
    device().launch(text_kernel(body, OUT, GIVEN, **{"block": 64, **launch}), out, data)
    return out


#: A body with a place for what orders its accesses, what does, and what does not.
RACES = {
    "threads of two warps": (SHARED + "ORDER; out[t] = held[t ^ 32];", "__syncthreads()", "__syncwarp()"),
    "threads of a warp": (SHARED + "ORDER; out[t] = held[t ^ 1];", "__syncwarp()", ""),
    "an asynchronous copy": (
        "__shared__ real held[64]; const int t = threadIdx.x; cp_async(held + t, given + t);"
        "cp_async_commit_group(); ORDER; out[t] = held[t];",
        "cp_async_wait_group(0)", "cp_async_wait_group(1)",
    ),
    "an atomic and a plain access": (
        "out[threadIdx.x] = 1; atomicAdd(given, 1.0f); ORDER; if (threadIdx.x == 40) out[0] = given[0];",
        "__syncthreads()", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RACES)
def test_a_race_is_an_error(name: str) -> None:
    body, ordered, unordered = RACES[name]
    run_body(body.replace("ORDER", ordered), RaceDevice)
    with pytest.raises(EmulationError, match=r"a race on .* and nothing orders them"):
        run_body(body.replace("ORDER", unordered), RaceDevice)


@pytest.mark.long
def test_every_kernel_is_clean_under_the_sanitizers() -> None:
    """AddressSanitizer and UBSan see reads out of bounds, which the device itself does not."""
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
        "BPPSA_EMULATOR_SANITIZE": "1",
        "PYTHONPATH": os.pathsep.join([str(TESTS / "support"), os.environ.get("PYTHONPATH", "")]).rstrip(":"),
    }

    fault = """
import numpy as np
from emulator.device import EmulatedDevice
from emulator.text_kernel import array_in, array_out, text_kernel
arrays = array_in("values", "real", "32"), array_out("out", "real", "32")
EmulatedDevice().launch(
    text_kernel("out[threadIdx.x] = values[threadIdx.x + 1];", *arrays), np.ones(32), np.ones(32))
"""
    process = subprocess.run([sys.executable, "-c", fault], env=environment, capture_output=True, check=False)
    assert b"heap-buffer-overflow" in process.stderr
    kernels = str(TESTS / "raw_kernels" / "test_kernel_pairs.py")
    command = [sys.executable, "-m", "pytest", "-qs", "-k", "emulat", "-m", "not long", kernels]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr

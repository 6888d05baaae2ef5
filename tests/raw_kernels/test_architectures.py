"""What GPUs of each architecture take of a launch: the table, and what emulator and stand-in refuse."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import cupy_stub
import numpy as np
import pytest
from emulator.build import EmulationError, compiler
from emulator.device import EmulatedDevice
from emulator.text_kernel import array_out, text_kernel
from executors import make_device
from launch_refusals import SHARED_BYTES, refusal

from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES, KIB, Architecture
from bppsa_cupy.raw_kernels.kernel import LEAST_SHARED_BYTES, Variant

ONE, NUMBER = (1, 1, 1), 2**31
OUT = array_out("out", "int32", "1")


@pytest.fixture(params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> Architecture:
    return ARCHITECTURES[request.param]


def test_a_block_can_have_what_a_multiprocessor_has_but_what_the_system_keeps(
    architecture: Architecture,
) -> None:
    """From sm_80 on a KiB of each block is the system's."""
    kept = 0 if architecture.name == "sm_75" else KIB
    assert architecture.shared_bytes == architecture.multiprocessor_bytes - kept
    assert LEAST_SHARED_BYTES <= architecture.shared_bytes


@pytest.mark.gpu
def test_the_gpu_at_hand_has_the_limits_of_its_architecture() -> None:
    gpu = make_device("cuda").xp.cuda.Device()
    limits = ARCHITECTURES.get(f"sm_{gpu.compute_capability}")
    if limits is None:
        pytest.skip(f"the limits of sm_{gpu.compute_capability} are not in the table")
    expected = cupy_stub.attributes_of(limits)
    for of_one_product in ("MultiProcessorCount", "L2CacheSize"):
        del expected[of_one_product]
    assert {name: gpu.attributes[name] for name in expected} == expected


@pytest.mark.parametrize(
    "grid, block, taken, words",
    [
        ((NUMBER - 1, 65535, 65535), (1024, 1, 1), {}, None),
        ((NUMBER, 1, 1), ONE, {}, r"a grid of \(2147483648, 1, 1\) blocks"),
        ((1, 65536, 1), ONE, {}, r"a grid of \(1, 65536, 1\) blocks is launched, sm_90 takes"),
        ((1, 1, 65536), ONE, {}, "a grid"),
        ((0, 1, 1), ONE, {}, "a grid"),
        (ONE, (16, 1, 64), {}, None),
        (ONE, (8, 1, 65), {}, r"a block of \(8, 1, 65\) threads"),
        (ONE, (1025, 1, 1), {}, "a block of"),
        (ONE, (512, 3, 1), {}, r"threads is launched, sm_90 takes .* 1024 in all \(CUDA_ERROR_INVALID_VALUE"),
        (ONE, ONE, {"shared_bytes": 48 * KIB}, None),
        (ONE, ONE, {"shared_bytes": 48 * KIB + 1}, r"takes 49153 bytes of shared memory, it gets 49152"),
        (ONE, ONE, {"shared_bytes": 227 * KIB, "asked_for": 227 * KIB}, None),
        (ONE, ONE, {"shared_bytes": 227 * KIB + 1, "asked_for": 256 * KIB}, "it gets 232448"),
        (ONE, (256, 1, 1), {"registers": 255}, None),
        (ONE, (1024, 1, 1), {"registers": 64}, None),
        # A warp gets registers by 256: of 65 a thread as many as of 72.
        (ONE, (897, 1, 1), {"registers": 65}, r"takes 66816 registers, 65536 are there .*OUT_OF_RESOURCES"),
        (ONE, (896, 1, 1), {"registers": 72}, None),
        (ONE, (257, 1, 1), {"registers": 255}, "takes 73728 registers"),
    ],
)  # fmt: skip
def test_what_the_driver_refuses(
    grid: tuple[int, ...], block: tuple[int, ...], taken: dict[str, int], words: str | None
) -> None:
    found = refusal(ARCHITECTURES["sm_90"], grid, block, **{"shared_bytes": 0, **taken})
    if words is None:
        assert found is None
    else:
        with pytest.raises(ValueError, match=words):
            raise ValueError(found)


# ---- the emulator and the stand-in ----


def test_the_emulator_takes_the_shared_memory_of_its_architecture(architecture: Architecture) -> None:
    make_device("emulated")  # skips where there is no g++
    device, limit = EmulatedDevice(architecture.name), architecture.shared_bytes
    body = "extern __shared__ char held[]; held[GIVEN] = 7; out[0] = held[GIVEN];"
    out = np.zeros(1, np.int32)
    kernel = text_kernel(body.replace("GIVEN", str(limit - 1)), OUT, grid=1, block=1, shared_bytes=limit)
    device.launch(kernel, out)
    assert out[0] == 7
    kernel = text_kernel("out[0] = 1;", OUT, grid=1, block=1, shared_bytes=limit + 1)
    with pytest.raises(DeviceError, match=rf"takes {limit + 1} bytes of shared memory, {limit} are there"):
        device.launch(kernel, out)


def test_the_emulator_takes_as_many_registers_as_there_are() -> None:
    make_device("emulated")
    kernel = text_kernel("if (threadIdx.x == 0) out[0] = 1;", OUT, grid=1, block=512)
    out = np.zeros(1, np.int32)
    EmulatedDevice("sm_86", registers=128).launch(kernel, out)
    assert out[0] == 1
    with pytest.raises(EmulationError, match="takes 69632 registers, 65536 are there"):
        EmulatedDevice("sm_86", registers=129).launch(kernel, out)


@pytest.fixture
def cupy(architecture: Architecture, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    if compiler() is None:
        pytest.skip("the stand-in's kernels need g++")
    monkeypatch.setattr(cupy_stub.Gpu, "architecture", architecture)
    module = cupy_stub.make_cupy(architecture=architecture.name)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_a_kernel_gets_48_kib_until_it_asks_for_what_there_is(
    architecture: Architecture, cupy: SimpleNamespace, tmp_path: Path
) -> None:
    code = cupy_stub.Nvrtc.HEADER + KERNELS["step_count"].source(Variant()).encode()
    file, limit = tmp_path / "kernel.cubin", architecture.shared_bytes
    file.write_bytes(code)
    function = cupy.RawModule(path=str(file)).get_function("step_count")
    blocked, steps = (cupy.asarray(np.zeros(1, np.int32)) for _ in range(2))
    assert function.max_dynamic_shared_size_bytes == SHARED_BYTES
    function(ONE, ONE, (blocked, steps), shared_mem=SHARED_BYTES)
    with pytest.raises(EmulationError, match=rf"it gets {SHARED_BYTES} \(CUDA_ERROR_INVALID_VALUE\)"):
        function(ONE, ONE, (blocked, steps), shared_mem=SHARED_BYTES + 1)
    with pytest.raises(cupy_stub.CUDARuntimeError, match="CUDA_ERROR_INVALID_VALUE"):
        function.max_dynamic_shared_size_bytes = limit + 1
    function.max_dynamic_shared_size_bytes = limit
    function(ONE, ONE, (blocked, steps), shared_mem=limit)
    assert steps[0] == 2
    with pytest.raises(EmulationError, match=rf"it gets {limit} "):
        function(ONE, ONE, (blocked, steps), shared_mem=limit + 1)

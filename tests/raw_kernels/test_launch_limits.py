"""What GPUs of each architecture take of a launch; every launch of a kernel stays within it."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import cupy_stub
import numpy as np
import pytest
from cupy_fixtures import no_device_is_kept  # noqa: F401  a fixture
from emulator.build import EmulationError, compiler
from emulator.device import EmulatedDevice
from emulator.text_kernel import array_out, text_kernel
from executors import make_device
from kernel_cases import CASES
from launch_refusals import SHARED_BYTES, refusal

from bppsa_cupy.devices import cubins, driver
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES, KIB, Architecture
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.kernels import VERBS
from bppsa_cupy.raw_kernels.kernel import LEAST_SHARED_BYTES, Kernel, Variant
from bppsa_cupy.raw_kernels.twins.scans.reduce import MAXIMAL_STATE
from bppsa_cupy.timescan import WalkSize
from bppsa_cupy.timescan.serial import check_shared
from bppsa_cupy.timescan.ways import serial_ways, shared_lack

HIDDEN = (1, 20, 64, 65, 128, 129, 220, 300, 448, 615, 878, 1024)
BATCHES, STEPS, CHUNK = (1, 600), 1000, 10
OF_CELLS = {f"{cell}_{verb}" for cell in FORMS for verb in VERBS if verb != "fill"}


@pytest.fixture(params=ARCHITECTURES)
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CudaDevice:
    """A CudaDevice on the stand-in of a GPU of each architecture."""
    return gpu_of(request.param, monkeypatch, tmp_path)


def gpu_of(architecture: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CudaDevice:
    monkeypatch.setattr(cupy_stub.Gpu, "architecture", ARCHITECTURES[architecture])
    monkeypatch.setitem(sys.modules, "cupy", cupy_stub.make_cupy(architecture=architecture))
    monkeypatch.setattr(cubins, "kept_in", lambda: tmp_path)
    monkeypatch.setattr(driver, "library", lambda: None)
    return CudaDevice()


def refusal_of(device: CudaDevice, kernel: Kernel, scalars: Mapping[str, float], itemsize: int) -> str | None:
    """Why a GPU refuses the launch; None where nothing is launched."""
    shape = kernel.launch(device.facts_of_launch(scalars, itemsize))
    if 0 in shape.grid:
        return None
    architecture = cupy_stub.Gpu.architecture
    return refusal(architecture, *shape, asked_for=architecture.shared_bytes)


def sizes_of(kernel: Kernel) -> Iterator[Mapping[str, float]]:
    """Those of the kernel pairs' cases, and some of more items than a grid has blocks."""
    scalars: Mapping[str, float] = {}
    for case in CASES[kernel.name](np.random.default_rng(0)):
        yield (scalars := case.scalars)
    many = {"batch": 1 << 20, "rows": 1 << 30, "steps": 1 << 30, "size": 1 << 60, "count": 1 << 60,
            "out_height": 1 << 15, "out_width": 1 << 15, "c_nnz": 1 << 40, "nnz": 1 << 40}  # fmt: skip
    yield {**scalars, **{name: many[name] for name in many.keys() & scalars.keys()}}


@pytest.mark.parametrize("name", sorted(set(KERNELS) - OF_CELLS))
def test_every_launch_is_taken_everywhere(name: str) -> None:
    """A block of more than 256 threads has launch bounds: a thread may take 255 registers of 65536."""
    for scalars, itemsize in itertools.product(sizes_of(KERNELS[name]), (4, 8)):
        for one in ARCHITECTURES.values():
            shape = KERNELS[name].launch({**scalars, "itemsize": itemsize, "shared_bytes": one.shared_bytes})
            if 0 not in shape.grid:
                assert refusal(one, *shape, asked_for=one.shared_bytes) is None, (scalars, itemsize, one.name)
                assert math.prod(shape.block) <= 256 or "__launch_bounds__" in KERNELS[name].text


@pytest.mark.long
@pytest.mark.parametrize("cell", FORMS)
def test_passes_over_time_of_any_width_are_taken(cell: str, gpu: CudaDevice) -> None:
    """A serial pass goes by what fits; one by chunks fits, or is run serially and says why."""
    for hidden, batch, itemsize in itertools.product(HIDDEN, BATCHES, (4, 8)):
        size = WalkSize(FORMS[cell], STEPS, batch, hidden, itemsize)
        check_shared(gpu, size)
        scalars = {
            **dict(zip(("steps", "hidden", "sets", "batch", "walks"), size.scalars, strict=True)),
            "chunk": STEPS, "first": 1, "per_step": 1,
        }  # fmt: skip
        for verb, scan in (("forward", "newton_scan"), ("backward", "chunk_scan")):
            for way in serial_ways(gpu, size, verb):
                serial = f"{cell}_{verb}_step" if way == "steps" else f"{cell}_{verb}"
                assert refusal_of(gpu, KERNELS[serial], scalars, itemsize) is None, (serial, size)
            if size.state > MAXIMAL_STATE or shared_lack(gpu, size, verb, CHUNK):
                continue
            in_chunks = {
                **scalars,
                "chunk": CHUNK,
                "chunks": size.chunks(CHUNK),
                "states": FORMS[cell].states,
            }
            if verb == "forward":  # chunks are samples
                in_chunks |= {"steps": CHUNK, "batch": batch * size.chunks(CHUNK)}
            for name in (f"{cell}_{verb}", f"{cell}_reduce", scan):
                assert refusal_of(gpu, KERNELS[name], in_chunks, itemsize) is None, (name, size)


# ---- the table, and what emulator and stand-in refuse ----


@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_a_block_can_have_what_a_multiprocessor_has_but_what_the_system_keeps(
    architecture: Architecture,
) -> None:
    """From sm_80 on a KiB of each block is the system's."""
    kept = 0 if architecture.name == "sm_75" else KIB
    assert architecture.shared_bytes == architecture.multiprocessor_bytes - kept >= LEAST_SHARED_BYTES


@pytest.mark.gpu
def test_the_gpu_at_hand_has_the_limits_of_its_architecture() -> None:
    device = make_device("cuda").xp.cuda.Device()
    limits = ARCHITECTURES.get(f"sm_{device.compute_capability}")
    if limits is None:
        pytest.skip(f"the limits of sm_{device.compute_capability} are not in the table")
    expected = cupy_stub.attributes_of(limits)
    for of_one_product in ("MultiProcessorCount", "L2CacheSize"):
        del expected[of_one_product]
    assert {name: device.attributes[name] for name in expected} == expected


#: Grid, block, bytes of shared memory, and what of them an H100 refuses.
LAUNCHES = [
    ((2**31 - 1, 65535, 65535), (1024, 1, 1), 48 * KIB, None),
    ((2**31, 1, 1), (1, 1, 1), 0, "a grid"), ((1, 65536, 1), (1, 1, 1), 0, "a grid"),
    ((0, 1, 1), (1, 1, 1), 0, "a grid"), ((1, 1, 1), (16, 1, 64), 0, None),
    ((1, 1, 1), (8, 1, 65), 0, "a block of"), ((1, 1, 1), (512, 3, 1), 0, "a block of"),
    ((1, 1, 1), (1, 1, 1), 48 * KIB + 1, "a block takes"),
]  # fmt: skip


@pytest.mark.parametrize("grid, block, shared_bytes, refused", LAUNCHES)
def test_what_the_driver_refuses(
    grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int, refused: str | None
) -> None:
    found = refusal(ARCHITECTURES["sm_90"], grid, block, shared_bytes)
    assert found is None if refused is None else found is not None and found.startswith(refused)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_emulator_takes_the_shared_memory_of_its_architecture(name: str) -> None:
    make_device("emulated")  # skips where there is no g++
    device, limit, out = EmulatedDevice(name), ARCHITECTURES[name].shared_bytes, np.zeros(1, np.int32)
    body = f"extern __shared__ char held[]; held[{limit - 1}] = 7; out[0] = held[{limit - 1}];"
    launch = {"grid": 1, "block": 1}
    device.launch(text_kernel(body, array_out("out", "int32", "1"), shared_bytes=limit, **launch), out)
    assert out[0] == 7
    with pytest.raises(DeviceError, match=rf"{limit + 1} bytes of shared memory, {limit} are"):
        kernel = text_kernel("out[0] = 1;", array_out("out", "int32", "1"), shared_bytes=limit + 1, **launch)
        device.launch(kernel, out)


def test_a_kernel_gets_48_kib_until_it_asks_for_what_there_is(gpu: CudaDevice, tmp_path: Path) -> None:
    if compiler() is None:
        pytest.skip("the stand-in's kernels need g++")
    cupy, one = gpu.xp, (1, 1, 1)
    code = cupy_stub.Nvrtc.HEADER + KERNELS["step_count"].source(Variant()).encode()
    file, limit = tmp_path / "kernel.cubin", cupy_stub.Gpu.architecture.shared_bytes
    file.write_bytes(code)
    function = cupy.RawModule(path=str(file)).get_function("step_count")
    blocked, steps = (cupy.asarray(np.zeros(1, np.int32)) for _ in range(2))
    function(one, one, (blocked, steps), shared_mem=SHARED_BYTES)
    with pytest.raises(EmulationError, match=rf"it gets {SHARED_BYTES}"):
        function(one, one, (blocked, steps), shared_mem=SHARED_BYTES + 1)
    with pytest.raises(cupy_stub.CUDARuntimeError, match="CUDA_ERROR_INVALID_VALUE"):
        function.max_dynamic_shared_size_bytes = limit + 1
    function.max_dynamic_shared_size_bytes = limit
    function(one, one, (blocked, steps), shared_mem=limit)
    assert steps[0] == 2

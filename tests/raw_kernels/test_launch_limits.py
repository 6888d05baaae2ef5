"""Every launch is within what a GPU of each architecture takes, or another way is gone that is told."""

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
from emulator.build import compiler
from frames_reference import gru
from kernel_cases import CASES
from kernel_comparison import turned
from launch_refusals import REGISTERS, REGISTERS_OF_THREAD, SHARED_BYTES, refusal, scalars_of
from tolerances import assert_close

from bppsa_cupy.devices import cubins, driver
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.kernels import VERBS
from bppsa_cupy.raw_kernels.frames.places import is_wide
from bppsa_cupy.raw_kernels.kernel import Kernel
from bppsa_cupy.raw_kernels.twins.scans.reduce import MAXIMAL_STATE
from bppsa_cupy.timescan import WalkSize
from bppsa_cupy.timescan.serial import check_shared
from bppsa_cupy.timescan.ways import serial_ways, shared_lack

pytestmark = pytest.mark.long

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
    """Why a GPU refuses the launch, whatever registers its threads take; None where nothing is launched."""
    shape = kernel.launch(device.facts_of_launch(scalars, itemsize))
    if 0 in shape.grid:
        return None
    architecture = cupy_stub.Gpu.architecture
    return refusal(architecture, *shape, asked_for=architecture.shared_bytes, registers=REGISTERS_OF_THREAD)


def sizes_of(kernel: Kernel) -> Iterator[Mapping[str, float]]:
    """Those of the kernel pairs' cases, the machine code's, and some of more items than a grid has blocks."""
    yield from (case.scalars for case in CASES[kernel.name](np.random.default_rng(0)))
    yield scalars_of(kernel)
    many = {"batch": 1 << 20, "rows": 1 << 30, "steps": 1 << 30, "size": 1 << 60, "count": 1 << 60}
    yield scalars_of(kernel, **many, out_height=1 << 15, out_width=1 << 15, c_nnz=1 << 40, nnz=1 << 40)


@pytest.mark.parametrize("name", sorted(set(KERNELS) - OF_CELLS))
def test_every_launch_is_taken_everywhere(name: str) -> None:
    for scalars, itemsize in itertools.product(sizes_of(KERNELS[name]), (4, 8)):
        for one in ARCHITECTURES.values():
            shape = KERNELS[name].launch({**scalars, "itemsize": itemsize, "shared_bytes": one.shared_bytes})
            if 0 not in shape.grid:
                # The compiler keeps a kernel with launch bounds within the registers of its block.
                is_bound = "__launch_bounds__" in KERNELS[name].text
                registers = REGISTERS // math.prod(shape.block) // 8 * 8 if is_bound else REGISTERS_OF_THREAD
                registers = min(registers, REGISTERS_OF_THREAD)
                limits = {"asked_for": one.shared_bytes, "registers": registers}
                assert refusal(one, *shape, **limits) is None, (scalars, itemsize, one.name)


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


def test_each_gpu_of_a_machine_has_its_own_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device = gpu_of("sm_90", monkeypatch, tmp_path)
    shared = {number: ARCHITECTURES[name].shared_bytes for number, name in enumerate(("sm_90", "sm_75"))}
    for number, name in ((0, "sm_90"), (1, "sm_75"), (0, "sm_90")):
        monkeypatch.setattr(cupy_stub.Gpu, "architecture", ARCHITECTURES[name])
        with device.xp.cuda.Device(number):
            assert device.shared_bytes == shared[number]


def test_what_blocks_do_not_hold_goes_by_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Four samples of a block take 118,112 bytes."""
    size = WalkSize(FORMS["lstm"], STEPS, 600, 615, 8)
    for architecture, ways in (("sm_86", ["steps"]), ("sm_80", ["steps", "blocks"])):
        assert serial_ways(gpu_of(architecture, monkeypatch, tmp_path), size, "forward") == ways


def test_chunks_that_blocks_do_not_hold_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From 512 walks on a block takes four, and 71,680 bytes."""
    gpu, size = gpu_of("sm_75", monkeypatch, tmp_path), WalkSize(FORMS["gru"], STEPS, 16, 448, 8)
    words = "a block of gru_backward takes 71680 bytes of shared memory, 65536 are there"
    assert shared_lack(gpu, size, "backward", CHUNK) == words
    assert shared_lack(gpu, size, "backward", STEPS // 20) is None
    assert shared_lack(gpu_of("sm_86", monkeypatch, tmp_path), size, "backward", CHUNK) is None


def test_walks_at_the_widest_that_blocks_hold(gpu: CudaDevice, rng: np.random.Generator) -> None:
    """Weights in a block's registers and shared memory, and just beyond, where they are read from memory."""
    if compiler() is None:
        pytest.skip("the stand-in's kernels need g++")
    kernel, taken = KERNELS["gru_forward"], []
    widest = kernel.layouts("float32", gpu.shared_bytes)[-1]
    for hidden in (widest.width, widest.width + 1):
        sizes = {"steps": 1, "hidden": hidden, "sets": 1, "batch": 1, "walks": 1}
        x, bias = (rng.standard_normal((3, hidden), "float32") for _ in range(2))
        weights = rng.standard_normal((3, hidden, hidden), "float32") / np.float32(hidden**0.5)
        before, empty = rng.standard_normal((1, hidden), "float32"), np.empty(0, "float32")
        state, kept, final = (np.zeros((rows, hidden), "float32") for rows in (1, 4, 1))
        arrays = (x, weights, bias, empty, before, np.ones(1, np.int64), state, kept, final)
        given = [gpu.asarray(array) for array in turned(kernel, [*arrays, *sizes.values(), 0])[: len(arrays)]]
        gpu.launch(kernel, *given, *sizes.values(), 0)
        sums = bias + weights.astype("float64") @ before[0]
        expected = gru(x.astype("float64"), sums, before.astype("float64"), empty)
        assert_close(gpu.to_host(given[-1]).reshape(1, -1), np.array(expected), length=hidden)
        taken.append(kernel.launch(gpu.facts_of_launch(sizes, 4)).shared_bytes)
    assert is_wide(widest) and taken[0] <= gpu.shared_bytes and taken[1] < SHARED_BYTES

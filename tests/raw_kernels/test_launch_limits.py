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
from executors import make_device
from kernel_cases import CASES
from launch_refusals import refusal

from bppsa_cupy.devices import cubins
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.grids import grid_kernel
from bppsa_cupy.raw_kernels.frames.kernels import VERBS
from bppsa_cupy.raw_kernels.kernel import Kernel
from bppsa_cupy.raw_kernels.twins.scans.reduce import MAXIMAL_STATE
from bppsa_cupy.timescan import WalkSize
from bppsa_cupy.timescan.ways import grid_tiles, serial_ways, shared_lack

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
    monkeypatch.setattr(CudaDevice, "cluster_blocks", 1)
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
        for gpu in ARCHITECTURES.values():
            shape = KERNELS[name].launch({**scalars, "itemsize": itemsize, "shared_bytes": gpu.shared_bytes})
            if 0 not in shape.grid:
                assert refusal(gpu, *shape, asked_for=gpu.shared_bytes) is None, (scalars, itemsize, gpu.name)
                assert math.prod(shape.block) <= 256 or "__launch_bounds__" in KERNELS[name].text


@pytest.mark.long
@pytest.mark.parametrize("cell", FORMS)
def test_passes_over_time_of_any_width_are_taken(cell: str, gpu: CudaDevice) -> None:
    """A serial pass goes by what fits; one by chunks fits, or is run serially and says why."""
    for hidden, batch, itemsize in itertools.product(HIDDEN, BATCHES, (4, 8)):
        size = WalkSize(FORMS[cell], STEPS, batch, hidden, itemsize)
        scalars = {
            **dict(zip(("steps", "hidden", "batch"), size.scalars, strict=True)),
            "chunk": STEPS, "first": 1, "per_step": 1,
        }  # fmt: skip
        for verb, scan in (("forward", "newton_scan"), ("backward", "chunk_scan")):
            for way in serial_ways(gpu, size, verb):
                kernel = KERNELS[f"{cell}_{verb}_step" if way == "steps" else f"{cell}_{verb}"]
                if way.startswith("grid"):
                    kernel = grid_kernel(size.cell, verb, grid_tiles(gpu, size, verb)[way])
                    blocks = kernel.launch({"hidden": hidden, "itemsize": itemsize}).grid[0]
                    assert blocks <= gpu.cooperative_blocks
                assert refusal_of(gpu, kernel, scalars, itemsize) is None, (kernel.name, size)
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

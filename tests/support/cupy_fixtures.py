"""Fixtures that put the stand-in for CuPy in its place."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import cupy_stub
import pytest
from emulator.build import compiler

from bppsa_cupy import devices
from bppsa_cupy.devices import cubins, driver
from bppsa_cupy.devices.cuda import CudaDevice


@pytest.fixture(autouse=True)
def no_device_is_kept():
    yield
    devices._cuda.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, **machine: Any) -> ModuleType:
    cupy = cupy_stub.make_cupy(**machine)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(driver, "library", lambda: None)
    devices._cuda.cache_clear()
    return cupy


#: The one call of the driver that is made without CuPy, of a GPU with `MULTIPROCESSORS` in groups of 16. The
#: types are those of CUDA's header.
DRIVER = """
#include <stddef.h>
#include <stdint.h>
typedef struct { unsigned int x, y, z; } Dim;
typedef union { char pad[64]; Dim clusterDim; } CUlaunchAttributeValue;
typedef struct { unsigned int id; char pad[4]; CUlaunchAttributeValue value; } CUlaunchAttribute;
typedef struct {
    unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void *hStream;
    CUlaunchAttribute *attrs;
    unsigned int numAttrs;
} CUlaunchConfig;
extern "C" int cuOccupancyMaxActiveClusters(int *numClusters, void *func, const CUlaunchConfig *config)
{
    const Dim cluster = config->attrs->value.clusterDim;
    if (!func || config->numAttrs != 1 || config->attrs->id != 4 || config->hStream) return 1;
    if (cluster.y != 1 || cluster.z != 1 || config->gridDimX % cluster.x || cluster.x > 16) return 912;
    if (config->gridDimY != 1 || config->blockDimX % 32 || config->sharedMemBytes > 227 * 1024) return 1;
    *numClusters = MULTIPROCESSORS / 16 * (16 / cluster.x);
    return 0;
}
"""


def install_driver(monkeypatch: pytest.MonkeyPatch, folder: Path, multiprocessors: int = 132) -> None:
    """Put a stand-in for the driver in its place."""
    text, made = folder / "driver.cpp", folder / "libcuda.so"
    text.write_text(DRIVER, encoding="utf-8")
    define = f"-DMULTIPROCESSORS={multiprocessors}"
    subprocess.run(["g++", "-shared", "-fPIC", define, text, "-o", made], check=True)
    library = ctypes.CDLL(str(made))
    monkeypatch.setattr(driver, "library", lambda: library)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CudaDevice:
    """A CudaDevice on the stand-in, where kernels can be compiled; what is compiled is kept in `tmp_path`."""
    if compiler() is None:
        pytest.skip("the emulated device needs g++")
    install(monkeypatch)
    monkeypatch.setattr(cubins, "kept_in", lambda: tmp_path)
    return CudaDevice()

"""Fixtures that put the stand-in for CuPy in its place."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import cupy_stub
import pytest
from emulator.build import compiler

from bppsa_cupy import devices
from bppsa_cupy.devices import cubins
from bppsa_cupy.devices.cuda import CudaDevice


@pytest.fixture(autouse=True)
def no_device_is_kept():
    yield
    devices._cuda.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, **machine: Any) -> ModuleType:
    cupy = cupy_stub.make_cupy(**machine)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    devices._cuda.cache_clear()
    return cupy


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CudaDevice:
    """A CudaDevice on the stand-in, where kernels can be compiled; what is compiled is kept in `tmp_path`."""
    if compiler() is None:
        pytest.skip("the emulated device needs g++")
    install(monkeypatch)
    monkeypatch.setattr(cubins, "kept_in", lambda: tmp_path)
    return CudaDevice()

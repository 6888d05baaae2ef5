"""What a measurement ran on: versions and machine, without names of hosts or paths."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

from bppsa_cupy.devices import Device

PACKAGES = ("bppsa-cupy", "numpy", "scipy", "numba", "h5py", "torch", "cupy-cuda12x", "cupy-cuda13x")


def versions() -> dict[str, str]:
    """Python's version and those of the packages that matter and are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine(device: Device) -> dict[str, Any]:
    """The processor, its cores, and the GPU where `device` is one."""
    found: dict[str, Any] = {"processor": _processor(), "cores": os.cpu_count()}
    if device.name == "cuda":
        found["gpu"] = device.xp.cuda.runtime.getDeviceProperties(0)["name"].decode()
        found["cuda runtime"] = device.xp.cuda.runtime.runtimeGetVersion()
    return found


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()

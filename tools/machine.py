"""What a measurement ran on: processor, cores, GPU, versions; no name of a host, no path."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib import metadata
from typing import TYPE_CHECKING, Any

from bppsa_cupy.devices import Device

if TYPE_CHECKING:
    import torch

PACKAGES = (
    "bppsa-cupy", "numpy", "scipy", "numba", "h5py", "torch", "jax", "jaxlib", "cupy", "cupy-cuda12x",
    "cupy-cuda13x",
)  # fmt: skip


def provenance(device: Device, threads: int) -> dict[str, Any]:
    """What a file of measurements says of where they were taken."""
    return {
        "device": device.name,
        "machine": describe_machine(device, threads),
        "versions": versions(device),
    }


def describe_machine(device: Device, threads: int) -> dict[str, Any]:
    """Processor model, cores that may be used, threads that were, and the GPU's name or None."""
    return {
        "cpu": cpu_model(),
        "cores": available_cores(),
        "threads": threads,
        "gpu": gpu_name(device) if device.name == "cuda" else None,
    }


def cpu_model() -> str:
    """The processor's model as Linux names it."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            name, colon, value = line.partition(":")
            if colon and name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def available_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0))


def gpu_name(device: Device) -> str:
    """The GPU's name as CUDA gives it."""
    runtime = device.xp.cuda.runtime
    name = runtime.getDeviceProperties(runtime.getDevice())["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


def versions(device: Device) -> dict[str, Any]:
    """Versions of Python and the packages that are installed, and CUDA's where the device is one."""
    versions: dict[str, Any] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if device.name == "cuda":
        runtime = device.xp.cuda.runtime
        versions["cuda_runtime"] = runtime.runtimeGetVersion()
        versions["cuda_driver"] = runtime.driverGetVersion()
        versions["tf32"] = False
    return versions


def torch_device(device: Device) -> torch.device:
    """PyTorch's device; TF32 is off."""
    import torch

    if device.name == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        return torch.device("cuda")
    return torch.device("cpu")

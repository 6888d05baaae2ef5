"""The GPU's clocks and temperature beside what is timed, by the driver's own library (NVML); and clocks that
are up before."""

from __future__ import annotations

import ctypes
import functools
import time
from typing import Any, cast

from bppsa_cupy.devices import Device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Variant
from bppsa_cupy.tools.on_gpu.lines import filled_arguments, tell

#: NVML's numbers of clocks, and of the sensor.
CLOCKS, SENSOR = {"sm_mhz": 1, "memory_mhz": 2}, 0
#: Seconds of work that take the clocks up, at least and at most, and between two looks at them.
LEAST, MOST, BETWEEN = 0.5, 5.0, 0.1
#: Work that keeps every multiprocessor busy.
BUSY = {
    "steps": 64, "rows": 256, "inputs": 256, "outputs": 256, "batch": 256, "transposed": 0, "biased": 0
}  # fmt: skip


class NoNvml(Exception):
    """NVML is missing, or does not know the GPU: the message says what it said."""


@functools.cache
def nvml() -> ctypes.CDLL:
    """The library, begun. Raises NoNvml."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise NoNvml(str(error)) from error
    _check("nvmlInit_v2", library.nvmlInit_v2())
    return library


def clocks(bus: str) -> dict[str, int | str]:
    """Megahertz of multiprocessors and memory and degrees Celsius at present, of the GPU at this address on
    the machine's bus; why they are not known, where they are not."""
    found: dict[str, int | str] = {}
    try:
        library, gpu, value = nvml(), ctypes.c_void_p(), ctypes.c_uint()
        _check("handle", library.nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(gpu)))
        for name, number in CLOCKS.items():
            _check(name, library.nvmlDeviceGetClockInfo(gpu, number, ctypes.byref(value)))
            found[name] = value.value
        _check("celsius", library.nvmlDeviceGetTemperature(gpu, SENSOR, ctypes.byref(value)))
        found["celsius"] = value.value
    except NoNvml as error:
        found["unknown"] = str(error)
    return found


def bus_of(device: Device) -> str:
    """The GPU's address on its machine's bus."""
    return cast(CudaDevice, device).gpu


def _check(what: str, code: int) -> None:
    if code:
        raise NoNvml(f"NVML's {what} ended with {code}")


def tell_timed(device: Device, **line: Any) -> None:
    """`tell`, with the clocks and the temperature of a GPU beside what was just timed on it."""
    tell(**line, **({"clocks": clocks(bus_of(device))} if device.name == "cuda" else {}))


def spin_up(device: Device) -> None:
    """Keep a GPU at work until its clock of multiprocessors no longer rises, or MOST seconds; tells of it."""
    if device.name != "cuda":
        return
    kernel = KERNELS["sequence_project"]
    run = device.bind(kernel, *filled_arguments(device, kernel, Variant(), BUSY, 1.0))
    started, looks, seconds = time.monotonic(), [clocks(bus_of(device))], 0.0
    while seconds < MOST:
        until = time.monotonic() + BETWEEN
        while time.monotonic() < until:
            run()
            device.synchronize()
        looks.append(clocks(bus_of(device)))
        seconds = time.monotonic() - started
        before, now = (look.get("sm_mhz", 0) for look in looks[-2:])
        if seconds >= LEAST and now <= before:  # type: ignore[operator]
            break
    tell(spun_up=seconds, before=looks[0], clocks=looks[-1])

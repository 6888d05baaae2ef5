"""Devices: where arrays live and kernels run."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from bppsa_cupy.arguments import as_choice, is_one_of
from bppsa_cupy.conversion import check_detached, say_once
from bppsa_cupy.devices.base import Array, Device, Launch
from bppsa_cupy.devices.cubins import TooOldError
from bppsa_cupy.devices.host import HostDevice
from bppsa_cupy.errors import ArgumentError, DeviceError


def get_device(name: str | Device = "auto") -> Device:
    """The device called `name`: "cuda" (or "gpu"), "host" (or "cpu"), or "auto" (the GPU when CuPy finds one,
    else the host).

    A Device is returned as it is. Where CuPy, a driver or a GPU is there and too old, "auto" takes the host
    and says so once (RuntimeWarning). Raises DeviceError for another name, or for "cuda" without one.
    """
    if isinstance(name, Device):
        return name
    if is_one_of(name, ["auto"]):
        try:
            return _cuda()
        except DeviceError as error:
            if isinstance(error, TooOldError):
                say_once("device auto", f"device 'auto' uses the host: {error}")
            return _host()
    if is_one_of(name, ["cuda", "gpu"]):
        return _cuda()
    if is_one_of(name, ["host", "cpu"]):
        return _host()
    raise DeviceError(f"device {name!r} is unknown: pass 'auto', 'cuda' (or 'gpu') or 'host' (or 'cpu')")


def device_of(array: Array) -> Device:
    """The device that holds `array`: "cuda" for a CuPy array, else "host"."""
    if type(array) is np.ndarray:
        return _host()
    check_detached(array)  # such a tensor raises where it is asked for its interface
    return _cuda() if hasattr(array, "__cuda_array_interface__") else _host()


@lru_cache(maxsize=1)
def _host() -> HostDevice:
    return HostDevice()


@lru_cache(maxsize=1)
def _cuda() -> Device:
    from bppsa_cupy.devices.cuda import CudaDevice

    return CudaDevice()


def set_precision(precision: str) -> None:
    """Choose how GPUs multiply float32 matrices outside of recurrent steps.

    Recurrent steps, sparse kernels, float64 arrays and the host are not affected. A training step that was
    captured as a CUDA graph keeps the precision that was set at its capture.

    Parameters
    ----------
    precision : {"float32", "tf32"}
        "tf32" rounds factors to 10 bits of mantissa and uses tensor cores. "float32", the initial setting,
        does not round.

    Raises
    ------
    ArgumentError
        If `precision` is neither of these.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.set_precision("tf32")
    >>> bp.set_precision("float32")
    """
    from bppsa_cupy.devices.cuda import CudaDevice

    CudaDevice.precision = as_choice("set_precision", "precision", precision, ["float32", "tf32"])

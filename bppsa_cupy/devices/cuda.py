"""CUDA by CuPy: the only place that imports it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from bppsa_cupy.devices.base import Device
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels.kernel import Kernel, Variant

#: No fast-math: tanh and sigmoid stay within 4 ulp. Line information serves the profilers.
OPTIONS = ("--std=c++17", "-lineinfo")


def import_cupy() -> ModuleType:
    """CuPy with a usable GPU. Raises DeviceError that says which of the two is missing."""
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(
            f"device 'cuda' was asked for and CuPy cannot be imported ({error}): "
            "install the extra cuda12x or cuda13x, or take device='host'"
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(
            f"device 'cuda' was asked for and CuPy finds no GPU ({error}): take device='host'"
        ) from error
    if count == 0:
        raise DeviceError("device 'cuda' was asked for and CuPy finds 0 GPUs: take device='host'")
    return cupy


class CudaDevice(Device):
    """The current GPU: CuPy arrays, kernels compiled from their CUDA C++ text at first use."""

    name = "cuda"

    def __init__(self) -> None:
        super().__init__()
        self.xp = import_cupy()

    def empty(self, shape: tuple[int, ...] | int, dtype: Any) -> Any:
        try:
            return super().empty(shape, dtype)
        except self.xp.cuda.memory.OutOfMemoryError as error:
            needed = int(np.prod(shape)) * np.dtype(dtype).itemsize
            raise DeviceError(
                f"cuda: an array of {needed} bytes was asked for, {self.free_memory()} are free: "
                "use a smaller batch, or fewer levels of the scan"
            ) from error

    def asarray(self, array: Any, dtype: Any = None) -> Any:
        if not isinstance(array, self.xp.ndarray):
            on_gpu = hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] == 2
            array = self.xp.from_dlpack(array) if on_gpu else np.asarray(array)
        return self.xp.ascontiguousarray(self.xp.asarray(array, dtype=dtype)).reshape(array.shape)

    def to_host(self, array: Any) -> np.ndarray:
        return self.xp.asnumpy(array)

    def free_memory(self) -> int:
        free, _ = self.xp.cuda.runtime.memGetInfo()
        return int(free) + int(self.xp.get_default_memory_pool().free_bytes())

    def synchronize(self) -> None:
        self.xp.cuda.get_current_stream().synchronize()

    def _prepare(
        self, kernel: Kernel, variant: Variant, shape: Any, arguments: list[Any]
    ) -> Callable[[], None]:
        function = _function(self.xp, kernel, variant)
        grid, block, shared_bytes = shape
        packed = tuple(arguments)
        return lambda: function(grid, block, packed, shared_mem=shared_bytes)


@cache
def _function(cupy: ModuleType, kernel: Kernel, variant: Variant) -> Any:
    module = cupy.RawModule(code=kernel.source(variant), options=OPTIONS)
    return module.get_function(kernel.name)

"""CUDA by CuPy: the only place that imports it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from bppsa_cupy.devices.base import Device, Launch, check_real, from_dlpack
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels.kernel import Kernel, Variant
from bppsa_cupy.system.compilation import compiling

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


def import_cupyx_sparse() -> ModuleType:
    """CuPy's sparse matrices, cupyx.scipy.sparse, with a usable GPU. Raises DeviceError as `import_cupy`."""
    import_cupy()
    import cupyx.scipy.sparse

    return cupyx.scipy.sparse


class CudaDevice(Device):
    """The current GPU: CuPy arrays, kernels compiled from their CUDA C++ text at first use."""

    name = "cuda"

    def __init__(self) -> None:
        super().__init__()
        self.xp = import_cupy()

    def asarray(self, array: Any, dtype: Any = None) -> Any:
        if not isinstance(array, self.xp.ndarray):
            on_gpu = hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] == 2
            array = self.xp.from_dlpack(array) if on_gpu else from_dlpack(array)
        check_real(array, dtype)
        return self.xp.ascontiguousarray(self.xp.asarray(array, dtype=dtype)).reshape(array.shape)

    def to_host(self, array: Any) -> np.ndarray:
        return self.xp.asnumpy(array)

    def fetch(self, array: Any) -> Callable[[], np.ndarray]:
        pinned = self.xp.cuda.alloc_pinned_memory(max(array.nbytes, 1))
        copy = np.frombuffer(pinned, array.dtype, array.size).reshape(array.shape)
        array.get(out=copy, blocking=False)
        done = self.xp.cuda.Event(disable_timing=True)
        done.record()

        def wait() -> np.ndarray:
            done.synchronize()
            return copy

        return wait

    def free_memory(self) -> int:
        free, _ = self.xp.cuda.runtime.memGetInfo()
        return int(free) + int(self.xp.get_default_memory_pool().free_bytes())

    @property
    def workers(self) -> int:
        return int(self.xp.cuda.Device().attributes["MultiProcessorCount"])

    def synchronize(self) -> None:
        self.xp.cuda.get_current_stream().synchronize()

    def timestamp(self) -> Any:
        event = self.xp.cuda.Event()
        event.record()
        return event

    def seconds(self, start: Any, end: Any) -> float:
        end.synchronize()
        return float(self.xp.cuda.get_elapsed_time(start, end)) / 1000

    def sequence(self, launches: Sequence[Launch]) -> Launch:
        """One call that makes bound launches in their order, from the second time on as a CUDA graph.

        The first time runs them one by one, which compiles and loads their kernels. Kernels and
        addresses are those of the bound launches, so a replay is one launch on the host.
        """
        return _Graph(self, launches)

    def _prepare(self, kernel: Kernel, variant: Variant, shape: Any, arguments: list[Any]) -> Launch:
        function = _function(self.xp, kernel, variant)
        grid, block, shared_bytes = shape
        packed = tuple(arguments)
        return lambda: function(grid, block, packed, shared_mem=shared_bytes)


class _Graph:
    """Bound launches that are captured into a CUDA graph and replayed."""

    def __init__(self, device: CudaDevice, launches: Sequence[Launch]) -> None:
        self._device, self._launches = device, list(launches)
        self._graph: Any = None
        self._loaded = False
        self._launched: Counter[str] = Counter()

    def __call__(self) -> None:
        if not self._launches:
            return
        if not self._loaded:
            self._run_all()
            self._loaded = True
            return
        if self._graph is None:
            self._capture()
        self._graph.launch(stream=self._device.xp.cuda.get_current_stream())
        self._device.launched.update(self._launched)

    def _run_all(self) -> None:
        for launch in self._launches:
            launch()

    def _capture(self) -> None:
        launched = self._device.launched
        before = launched.copy()
        stream = self._device.xp.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            self._run_all()
            self._graph = stream.end_capture()
        self._launched = launched - before
        launched.subtract(self._launched)


@cache
def _function(cupy: ModuleType, kernel: Kernel, variant: Variant) -> Any:
    module = cupy.RawModule(code=kernel.source(variant), options=OPTIONS)
    kept = Path(os.environ.get("CUPY_CACHE_DIR", "~/.cupy/kernel_cache")).expanduser()
    with compiling(kernel.name, kept):
        return module.get_function(kernel.name)

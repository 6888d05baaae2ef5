"""A stand-in for CuPy where there is no GPU: arrays are NumPy's in host memory, kernels run on the emulator.

It is as strict as CuPy where a mistake would be silent on the host: host arrays do not mix with device
arrays, kernel arguments are packed byte by byte as they are given, and a capture runs nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from emulator.build import compile_text
from emulator.library import Library

from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import LaunchShape


class CUDARuntimeError(RuntimeError):
    """CuPy's error of the CUDA runtime."""


class OutOfMemoryError(MemoryError):
    """CuPy's error of a full device."""


class ndarray(np.ndarray):
    """A device array."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        for value in (*inputs, *options.get("out", ())):
            if type(value) is np.ndarray:
                raise TypeError(f"unsupported type {type(value)}: a host array meets a device array")
        bare = [value.view(np.ndarray) if isinstance(value, ndarray) else value for value in inputs]
        if "out" in options:
            options["out"] = tuple(value.view(np.ndarray) for value in options["out"])
        result = getattr(ufunc, method)(*bare, **options)
        return on_device(result)

    def get(self, out: np.ndarray | None = None, blocking: bool = True) -> np.ndarray:
        host = np.array(self.view(np.ndarray)) if out is None else out
        host[...] = self.view(np.ndarray)
        return host


def on_device(value: Any) -> Any:
    return value.view(ndarray) if type(value) is np.ndarray else value


class Stream:
    """A stream; while it captures, launches are kept and not run."""

    current: list[Stream] = []  # noqa: RUF012  the stack of entered streams

    def __init__(self, non_blocking: bool = False) -> None:
        self.captured: list[Callable[[], None]] | None = None
        self.synchronized = 0

    def __enter__(self) -> Stream:
        Stream.current.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        Stream.current.pop()

    def begin_capture(self) -> None:
        self.captured = []

    def end_capture(self) -> SimpleNamespace:
        launches, self.captured = self.captured or [], None
        return SimpleNamespace(launch=lambda stream: [launch() for launch in launches])

    def synchronize(self) -> None:
        assert self.captured is None, "a capture must not wait"
        self.synchronized += 1


class Event:
    """An event, timed by the order of records: one millisecond between two of them."""

    recorded = 0

    def __init__(self, disable_timing: bool = False) -> None:
        self.time = 0

    def record(self) -> None:
        Event.recorded += 1
        self.time = Event.recorded

    def synchronize(self) -> None:
        assert self.time, "an event is waited for that was not recorded"


class Function:
    """A kernel of a RawModule."""

    def __init__(self, name: str, code: str) -> None:
        self.name = name
        self._library = Library(name, compile_text(code, name, KERNELS[name].parameters))

    def __call__(self, grid: tuple, block: tuple, arguments: tuple, *, shared_mem: int = 0) -> None:
        assert len(grid) == len(block) == 3 and 0 not in grid
        packed = []
        for value in arguments:
            if isinstance(value, ndarray):
                packed.append(ctypes.c_void_p(value.ctypes.data))
            else:
                assert isinstance(value, np.generic), f"{self.name}: {value!r} is packed as CuPy guesses"
                packed.append(ctypes.create_string_buffer(value.tobytes(), value.nbytes))
        shape = LaunchShape(tuple(map(int, grid)), tuple(map(int, block)), shared_mem)
        stream = Stream.current[-1]
        if stream.captured is not None:
            stream.captured.append(lambda: self._library.run(packed, shape))
        else:
            self._library.run(packed, shape)


class RawModule:
    """CUDA C++ text and options; the options are kept for the tests to read."""

    made: list[RawModule] = []  # noqa: RUF012  all modules of the session

    def __init__(self, code: str, options: tuple[str, ...]) -> None:
        self.code, self.options = code, options
        RawModule.made.append(self)

    def get_function(self, name: str) -> Function:
        return Function(name, self.code)


def make_cupy(*, devices: int = 1, free: int = 1 << 40) -> ModuleType:
    """A module to stand for `cupy`: a machine of `devices` GPUs with `free` bytes."""
    cupy = ModuleType("cupy")

    def count() -> int:
        if devices < 0:
            raise CUDARuntimeError("cudaErrorInsufficientDriver")
        return devices

    def empty(shape: Any, dtype: Any = float) -> ndarray:
        if int(np.prod(shape)) * np.dtype(dtype).itemsize > free:
            raise OutOfMemoryError("out of memory")
        return np.empty(shape, dtype).view(ndarray)

    def asarray(value: Any, dtype: Any = None) -> ndarray:
        if isinstance(value, ndarray):
            return value.astype(dtype, copy=False) if dtype is not None else value
        return np.array(value, dtype=dtype).view(ndarray)

    def fallback(name: str) -> Any:
        function = getattr(np, name)
        if isinstance(function, type) or not callable(function):
            return function

        def call(*arguments: Any, **options: Any) -> Any:
            if any(type(value) is np.ndarray for value in arguments):
                raise TypeError(f"{name} got a host array")
            return on_device(function(*arguments, **options))

        return call

    cupy.ndarray, cupy.empty, cupy.asarray, cupy.array = ndarray, empty, asarray, asarray
    cupy.ascontiguousarray = lambda value: np.ascontiguousarray(value).view(ndarray)
    cupy.asnumpy = lambda value: value.get()
    cupy.from_dlpack = lambda value: np.from_dlpack(value).view(ndarray)
    cupy.RawModule = RawModule
    cupy.get_default_memory_pool = lambda: SimpleNamespace(free_bytes=lambda: 5)
    cupy.cuda = SimpleNamespace(
        runtime=SimpleNamespace(
            getDeviceCount=count, CUDARuntimeError=CUDARuntimeError, memGetInfo=lambda: (free, 2 * free)
        ),
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        alloc_pinned_memory=lambda nbytes: bytearray(nbytes),
        get_current_stream=lambda: Stream.current[-1],
        get_elapsed_time=lambda start, end: float(end.time - start.time),
        Device=lambda: SimpleNamespace(attributes={"MultiProcessorCount": 132}),
        Stream=Stream,
        Event=Event,
    )
    cupy.__getattr__ = fallback
    return cupy


Stream.current.append(Stream())

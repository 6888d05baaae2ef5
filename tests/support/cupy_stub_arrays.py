"""Arrays of the stand-in for CuPy: NumPy's in host memory, which mix with no array of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from cupy_stub_memory import OF_RUNTIME, Memory
from cupy_stub_streams import Stream


class ndarray(np.ndarray):
    """A device array."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        for value in (*inputs, *options.get("out", ())):
            if type(value) is np.ndarray:
                raise TypeError(f"unsupported type {type(value)}: a host array meets a device array")
        bare = [value.view(np.ndarray) if isinstance(value, ndarray) else value for value in inputs]
        if "out" in options:
            options["out"] = tuple(value.view(np.ndarray) for value in options["out"])
        stream = Stream.current[-1]
        if stream.capture is not None:
            with np.errstate(all="ignore"):  # no values are there yet
                made = options.get("out") or (np.empty_like(getattr(ufunc, method)(*bare, **options)),)
            stream.add(lambda: getattr(ufunc, method)(*bare, **{**options, "out": made}))
            return on_device(Memory.keep(made[0]))
        result = getattr(ufunc, method)(*bare, **options)
        if "out" not in options:
            Memory.allocate(result.nbytes)
        return on_device(result)

    def __setitem__(self, key: Any, value: Any) -> None:
        stream, array = Stream.current[-1], self.view(np.ndarray)
        if stream.capture is None:
            array[key] = value
        else:
            stream.add(lambda: array.__setitem__(key, value))

    def __getitem__(self, key: Any) -> Any:
        return made_by(lambda: self.view(np.ndarray)[key], (self,))

    def reshape(self, *shape: Any, **options: Any) -> Any:
        return made_by(lambda: self.view(np.ndarray).reshape(*shape, **options), (self,))

    def astype(self, *arguments: Any, **options: Any) -> Any:
        return made_by(lambda: self.view(np.ndarray).astype(*arguments, **options), (self,))

    def copy(self, order: Any = "C") -> Any:
        return made_by(lambda: self.view(np.ndarray).copy(order), (self,))

    def get(self, out: np.ndarray | None = None, blocking: bool = True) -> np.ndarray:
        if not self.flags.c_contiguous:
            Memory.allocate(self.nbytes)
        host = np.array(self.view(np.ndarray)) if out is None else out
        if blocking:
            Stream.current[-1].refuse_in_capture("a copy to the host that is waited for")
            host[...] = self.view(np.ndarray)
            return host
        check_pinned(host, self)
        Stream.current[-1].refuse_in_capture("a copy of CuPy's to the host")
        self._begin_copy(host)
        return host

    def _begin_copy(self, host: np.ndarray) -> None:
        host.reshape(-1).view(np.uint8)[...] = 0xAB
        Stream.current[-1].work.append(Copy(np.array(self.view(np.ndarray)), host))

    def __bool__(self) -> bool:
        Stream.current[-1].refuse_in_capture("a number that the host reads")
        return bool(self.view(np.ndarray))

    def __float__(self) -> float:
        Stream.current[-1].refuse_in_capture("a number that the host reads")
        return float(self.view(np.ndarray))

    def __int__(self) -> int:
        Stream.current[-1].refuse_in_capture("a number that the host reads")
        return int(self.view(np.ndarray))

    @property
    def data(self) -> SimpleNamespace:
        return SimpleNamespace(ptr=self.ctypes.data, device_id=getattr(self, "gpu", 0))


def made_by(make: Callable[[], Any], arrays: Sequence[Any]) -> Any:
    """What `make` makes of arrays, for which memory is taken unless it is a view. A capture records it."""
    made = make()
    if not isinstance(made, (np.ndarray, np.generic)):
        return made
    array = np.asarray(made)
    if array.size and not any(isinstance(a, np.ndarray) and np.may_share_memory(array, a) for a in arrays):
        Memory.allocate(array.nbytes)
        Memory.keep(array)
        if Stream.current[-1].capture is not None:
            Stream.current[-1].add(lambda: array.__setitem__(..., make()))
    return array.view(ndarray)


class PinnedMemory(bytearray):
    """Memory of the host that is locked to its pages."""

    def __init__(self, size: int) -> None:
        Stream.current[-1].refuse_in_capture("pinned memory, in the mode of another library")
        Memory.allocate(OF_RUNTIME)
        super().__init__(size)


def check_pinned(host: np.ndarray, array: np.ndarray) -> None:
    assert type(host) is np.ndarray and (host.shape, host.dtype) == (array.shape, array.dtype)
    base: Any = host
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    assert isinstance(base, PinnedMemory), "a copy from or to pageable memory is not asynchronous"


class Copy:
    """A copy to pinned memory: not done when it is first asked about."""

    def __init__(self, values: np.ndarray, host: np.ndarray) -> None:
        self._values, self._host, self._asked = values, host, False

    def poll(self) -> bool:
        if self._asked:
            self._host[...] = self._values
        self._asked = True
        return bool((self._host == self._values).all())


def on_device(value: Any) -> Any:
    """A result as CuPy has it, where numbers are arrays of no dimensions."""
    return (
        np.asarray(value).view(ndarray)
        if type(value) is np.ndarray or isinstance(value, np.generic)
        else value
    )

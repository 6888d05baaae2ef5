"""The host: NumPy arrays, kernels by their Numba twins."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

import numba
import numpy as np
import threadpoolctl

from bppsa_cupy.conversion import check_array, check_detached, from_dlpack
from bppsa_cupy.devices.base import KEPT, Device
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels.kernel import Kernel, LaunchShape, Parameter, Variant
from bppsa_cupy.system.memory import free_host_memory

# How Numba's OpenMP threads wait for one another, unless the environment says otherwise. By default they spin
# for long, which is 3 to 100 times slower as soon as other work has a core; asleep at once they take half of
# a small network's step to wake. These spin for about as long as waking takes, and sleep then, so that they
# never lose more than twice what the better choice would.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")

#: Bytes of a cache line, and of the arrays that start on one.
LINE, ALIGNED_FROM = 64, 1 << 20

#: Bytes of a block whose release lets glibc's malloc keep up to twice as many, for the blocks to come, where
#: it would give them back: the largest that does (mallopt(3), M_MMAP_THRESHOLD), less a few words of its own.
KEPT_BLOCK = (32 << 20) - (1 << 16)

#: Whether this process is such a fork; its first parallel kernel would end it.
_forked_from_threads = False


def _note_fork() -> None:
    global _forked_from_threads
    try:
        _forked_from_threads = numba.threading_layer() == "omp"
    except ValueError:  # no parallel kernel has run
        pass


os.register_at_fork(after_in_child=_note_fork)


@cache
def start_threads() -> None:
    """Start Numba's threads, and set PyTorch's number back: it is OpenMP's, which Numba sets."""
    torch = sys.modules.get("torch")
    threads = None if torch is None else torch.get_num_threads()
    numba.set_num_threads(numba.get_num_threads())
    if torch is not None:
        torch.set_num_threads(threads)


class HostDevice(Device):
    """NumPy arrays and Numba twins on all threads Numba is given (NUMBA_NUM_THREADS).

    Making one sets the process's BLAS to one thread: its waiting threads would take the cores from
    Numba's, which call BLAS themselves, one tile a thread (without, a LeNet-5 step takes twice as long).
    """

    name = "host"
    xp = np

    def __init__(self) -> None:
        super().__init__()
        # Twins take scratch memory at each launch. Where malloc gives it back in between, its pages are made
        # anew each time, which was a third of a ResNet-20's step.
        with suppress(MemoryError):
            np.empty(KEPT_BLOCK, np.uint8)
        # Numba's np.dot calls SciPy's BLAS, which is loaded here so that it is limited too.
        import_module("scipy.linalg.cython_blas")
        threadpoolctl.threadpool_limits(limits=1, user_api="blas")

    def _take(self, shape: tuple[int, ...] | int, dtype: Any, nbytes: int) -> np.ndarray:
        # Kernels can write past the caches where an array starts on a cache line.
        if nbytes < ALIGNED_FROM:
            return np.empty(shape, dtype)
        room = np.empty(nbytes + LINE, np.uint8)
        start = -room.ctypes.data % LINE
        return room[start : start + nbytes].view(dtype).reshape(shape)

    def check_process(self) -> None:
        if _forked_from_threads:
            raise DeviceError(
                f"process {os.getpid()} was forked after its parent had run kernels in OpenMP threads: "
                "start it with the multiprocessing method 'spawn' (in a DataLoader, "
                "multiprocessing_context='spawn')"
            )

    def asarray(self, array: Any, dtype: Any = None) -> np.ndarray:
        if type(array) is np.ndarray and array.dtype in KEPT and array.flags.c_contiguous:
            if dtype is None or array.dtype == dtype:
                return array
        if not isinstance(array, np.ndarray):
            check_detached(array)
            is_cupy = hasattr(array, "__cuda_array_interface__") and hasattr(array, "get")
            array = array.get() if is_cupy else from_dlpack(array)
        check_array(array, dtype)
        return np.ascontiguousarray(array, dtype=dtype).reshape(array.shape)

    def to_host(self, array: np.ndarray) -> np.ndarray:
        return array

    def fetch(self, array: np.ndarray) -> Callable[[], np.ndarray]:
        copy = np.array(array)
        return lambda: copy

    def free_memory(self) -> int:
        return free_host_memory()

    @property
    def workers(self) -> int:
        start_threads()
        return int(numba.get_num_threads())

    def synchronize(self) -> None:
        """Every host launch is done when it returns."""

    def _prepare(self, kernel: Kernel, variant: Variant, shape: LaunchShape) -> Callable[..., None]:
        start_threads()
        return kernel.twin

    def _as_passed(self, parameters: Sequence[Parameter], values: Sequence[Any]) -> list[Any]:
        """The arguments of a twin, whose arrays have one axis."""
        passed = []
        for parameter, value in zip(parameters, values, strict=True):
            if isinstance(value, np.ndarray):
                if parameter.role == "in" and not value.flags.writeable:
                    # Numba would compile the twin once more for a read-only array.
                    value = np.asarray(_Memory(value))
                if value.ndim != 1:
                    value = value.reshape(-1)
            passed.append(value)
        return passed


class _Memory:
    """An array's memory by NumPy's array interface, and the array that owns it."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, owner: np.ndarray) -> None:
        interface = owner.__array_interface__
        self._owner, self.__array_interface__ = owner, {**interface, "data": (interface["data"][0], False)}

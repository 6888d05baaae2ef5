"""Memory of the stand-in for CuPy, which ends where a test says so, with the errors that CuPy has for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CUDARuntimeError(RuntimeError):
    """CuPy's error of the CUDA runtime."""


class CUDADriverError(RuntimeError):
    """CuPy's error of the CUDA driver."""


class CUBLASError(RuntimeError):
    """CuPy's error of cuBLAS."""


class OutOfMemoryError(MemoryError):
    """CuPy's error of a full device."""

    def __init__(self, size: int) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: 0 bytes).")
        self._size = size


#: What takes memory other than an array does, and what CuPy raises where there is none.
OTHERS = {
    "pinned memory, a graph, a stream or an event": CUDARuntimeError(
        "cudaErrorMemoryAllocation: out of memory"
    ),
    "code": CUDADriverError("CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
    "a workspace": CUBLASError("CUBLAS_STATUS_ALLOC_FAILED"),
}
OF_RUNTIME, OF_CODE, OF_BLAS = OTHERS


class Memory:
    """How often memory was taken, and how often it is there: for ever where `most` is None."""

    taken = 0
    most: int | None = None

    @classmethod
    def take(cls, what: int | str) -> None:
        """Take the bytes of an array, or memory for one of OTHERS."""
        if cls.most is not None and cls.taken >= cls.most:
            raise OutOfMemoryError(what) if isinstance(what, int) else OTHERS[what]
        cls.taken += 1

    @classmethod
    @contextmanager
    def ending_after(cls, most: int | None) -> Iterator[None]:
        """A block in which memory is there so many times."""
        cls.taken, cls.most = 0, most
        try:
            yield
        finally:
            cls.most = None

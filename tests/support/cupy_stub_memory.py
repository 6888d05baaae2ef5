"""Memory of the stand-in for CuPy, which ends where a test says so, with the errors that CuPy has for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


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


class MemoryPool:
    """A pool of its own, whose memory stays as long as it does: graphs hold addresses."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []

    def malloc(self, size: int) -> None: ...


@contextmanager
def using_allocator(allocator: Any) -> Iterator[None]:
    Memory.pools.append(allocator)
    try:
        yield
    finally:
        Memory.pools.pop()


class Memory:
    """How often memory was taken, and how often it is there: for ever where `most` is None."""

    taken = 0
    #: Products that cuBLAS was asked to make by TF32.
    tf32_products = 0
    most: int | None = None
    #: The pools that blocks `using_allocator` have entered.
    pools: list[Any] = []  # noqa: RUF012
    #: Refuses memory of the default pool in a capture, whose graph would outlive it.
    refuse_in_capture: Callable[[str], None] = staticmethod(lambda call: None)

    @classmethod
    def allocate(cls, request: int | str) -> None:
        """Count the bytes of an array, or the memory of an entry of OTHERS."""
        if isinstance(request, int) and not cls.pools:
            cls.refuse_in_capture("memory of the default pool")
        if cls.most is not None and cls.taken >= cls.most:
            raise OutOfMemoryError(request) if isinstance(request, int) else OTHERS[request]
        cls.taken += 1

    @classmethod
    def keep(cls, array: Any) -> Any:
        """Let the pool that is entered hold an array that was made."""
        if cls.pools:
            cls.pools[-1].__self__.arrays.append(array)
        return array

    @classmethod
    @contextmanager
    def ending_after(cls, most: int | None) -> Iterator[None]:
        """A block in which memory is there so many times."""
        cls.taken, cls.most = 0, most
        try:
            yield
        finally:
            cls.most = None

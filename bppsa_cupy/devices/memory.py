"""A device's lack of memory, told as DeviceError whoever found it: NumPy, CuPy, CUDA or cuBLAS."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from bppsa_cupy.errors import DeviceError, reason_of

#: What the RuntimeErrors of CuPy that are of memory say: of pinned memory, graphs, streams and events; of a
#: kernel's code; of cuBLAS's workspace.
OF_MEMORY = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED")


class HasMemory(Protocol):
    """A device, as far as it is needed here."""

    name: str

    def free_memory(self) -> int: ...


def too_little(device: HasMemory, needed: int | None, found: BaseException | None = None) -> DeviceError:
    """The error that tells of `needed` bytes; where they are not known, what `found` says."""
    what = f"an array of {needed} bytes was asked for"
    if needed is None:
        assert found is not None
        what = f"memory was asked for ({reason_of(found)})"
    return DeviceError(
        f"{device.name}: {what}, {device.free_memory()} are free: "
        "use a smaller batch, or fewer levels of the scan"
    )


class NamingMemory:
    """A block in which an error of memory becomes DeviceError, with the bytes that are free and, where they
    are known, those asked for."""

    __slots__ = ("_device",)

    def __init__(self, device: HasMemory) -> None:
        self._device = device

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        of_cuda = isinstance(error, RuntimeError) and any(word in str(error) for word in OF_MEMORY)
        if of_cuda or isinstance(error, MemoryError):
            raise too_little(self._device, getattr(error, "_size", None), error) from error

"""Copies of array arguments that show a kernel's stray writes, unwritten elements and overruns."""

from __future__ import annotations

import ctypes

import numpy as np

from emulator.build import EmulationError, sanitizing

#: Bytes before and after a copy; none under AddressSanitizer, which has its own around every block.
GUARD_BYTES = 256
#: Reads as NaN in both float dtypes, and as a large number in integers.
GUARD = 0xFF

_libc = ctypes.CDLL(None)
_libc.posix_memalign.argtypes = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t)
_libc.free.argtypes = (ctypes.c_void_p,)


class Buffer:
    """`size` elements of `dtype` in memory of their own, of exactly that size."""

    def __init__(self, size: int, dtype: np.dtype) -> None:
        guard = 0 if sanitizing() else GUARD_BYTES
        nbytes = size * dtype.itemsize
        self._block = ctypes.c_void_p()
        if _libc.posix_memalign(ctypes.byref(self._block), 256, guard + nbytes + guard):
            raise MemoryError(f"{nbytes} bytes for a kernel's argument")
        start = self._block.value or 0
        block = np.frombuffer((ctypes.c_ubyte * (2 * guard + nbytes)).from_address(start), np.uint8)
        self._guards = (block[:guard], block[guard + nbytes :])
        for part in self._guards:
            part[:] = GUARD
        self.address = start + guard
        self.array = block[guard : guard + nbytes].view(dtype)

    def guards_hold(self) -> bool:
        """Whether nothing was written right before or right after the elements."""
        return all(bool((part == GUARD).all()) for part in self._guards)

    def close(self) -> None:
        """Give the memory back; the arrays of the buffer must not be used any more."""
        _libc.free(self._block)
        self._block = ctypes.c_void_p()


def poison(dtype: np.dtype, turn: int) -> np.generic:
    """What an output holds before a launch; it differs between the turns, so no result is like it in both.

    For floats a NaN whose bits no arithmetic makes.
    """
    byte = (0xA5, 0x5A)[turn]
    bits = int.from_bytes(bytes([byte]) * dtype.itemsize, "little")
    if dtype.kind == "f":
        quiet_nan = {4: 0x7FC00000, 8: 0x7FF8000000000000}[dtype.itemsize]
        bits = quiet_nan | bits >> (10 if dtype.itemsize == 4 else 13)
    return np.array(bits, dtype=f"u{dtype.itemsize}").view(dtype)[()]


def bits(array: np.ndarray) -> np.ndarray:
    """`array` as unsigned integers, so that NaN equals itself and -0 is not 0."""
    return array.view(f"u{array.dtype.itemsize}")


def require(condition: bool, message: str) -> None:
    if not condition:
        raise EmulationError(message)

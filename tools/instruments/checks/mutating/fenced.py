"""Arguments of emulated kernels that end where no memory is: what reads beyond ends the process."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
from emulator.buffers import GUARD

#: What the widest load of a kernel is aligned to; a read that ends within as many bytes is not seen.
ALIGNMENT = 16
NO_ACCESS = 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class FencedBuffer:
    """What `emulator.buffers.Buffer` is, right before a page that may not be touched."""

    def __init__(self, size: int, dtype: np.dtype) -> None:
        nbytes = size * dtype.itemsize
        room = -(-max(1, nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._memory = mmap.mmap(-1, room + mmap.PAGESIZE)
        whole = np.frombuffer(self._memory, np.uint8)
        start = room - -(-nbytes // ALIGNMENT) * ALIGNMENT
        self._guards = whole[:start], whole[start + nbytes : room]
        for part in self._guards:
            part[:] = GUARD
        self.array = whole[start : start + nbytes].view(dtype)
        self.address = whole.ctypes.data + start
        if _libc.mprotect(whole.ctypes.data + room, mmap.PAGESIZE, NO_ACCESS):
            raise OSError(ctypes.get_errno(), "mprotect")

    def guards_hold(self) -> bool:
        """Whether nothing was written right before or right after the elements."""
        return all(bool((part == GUARD).all()) for part in self._guards)

    def close(self) -> None:
        """Let go of the memory, which is given back with the last array of it."""
        del self._guards, self._memory

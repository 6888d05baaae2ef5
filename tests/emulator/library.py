"""Launching a compiled kernel text: arguments by address, a grid, an order of its threads."""

from __future__ import annotations

import ctypes
import mmap
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bppsa_cupy.raw_kernels.kernel import LaunchShape
from emulator.build import EmulationError

MAXIMAL_THREADS = 1024
#: What a launch gets of shared memory, static and dynamic together, unless the function opts in to more.
MAXIMAL_SHARED_BYTES = 48 * 1024
STACK_BYTES = 256 * 1024

_lock = threading.Lock()
_stacks: list[tuple[mmap.mmap, int]] = []


class Library:
    """The shared object of one kernel; launches are made one at a time.

    opted_in  bytes of shared memory, static and dynamic together, that a launch may take
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.opted_in = name, MAXIMAL_SHARED_BYTES
        self._source = path.with_suffix(".cpp")
        handle = ctypes.CDLL(str(path))
        self._launch = handle.emulator_launch
        self._launch.restype = None
        self._entry = ctypes.cast(handle.emulator_entry, ctypes.c_void_p)
        self._bound = ctypes.c_int.in_dll(handle, "emulator_launch_bound").value
        handle.emulator_static_shared_bytes.restype = ctypes.c_size_t
        self.static_shared_bytes: int = handle.emulator_static_shared_bytes()

    def check_shape(self, shape: LaunchShape) -> None:
        """Raise EmulationError where a GPU would refuse the launch."""
        (x, y, z), (bx, by, bz), shared_bytes = shape
        if not (0 < x < 2**31 and 0 < y < 2**16 and 0 < z < 2**16):
            raise EmulationError(f"{self.name}: a grid of {(x, y, z)} blocks is outside what a GPU takes")
        threads = bx * by * bz
        if not 0 < threads <= min(MAXIMAL_THREADS, self._bound) or bz > 64:
            raise EmulationError(
                f"{self.name}: a block of {(bx, by, bz)} threads is launched, it takes at most {self._bound}"
            )
        total = shared_bytes + self.static_shared_bytes
        if total > self.opted_in:
            raise EmulationError(
                f"{self.name}: a block takes {total} bytes of shared memory, it gets {self.opted_in}"
            )

    def run(self, arguments: Sequence[Any], shape: LaunchShape, *, descending: bool = False) -> None:
        """Run the grid. `arguments` are ctypes values: pointers for arrays, numbers for scalars.

        Raises EmulationError where threads wait for others that do not come.
        """
        self.check_shape(shape)
        packed = (ctypes.c_void_p * max(len(arguments), 1))(
            *(ctypes.cast(ctypes.pointer(value), ctypes.c_void_p).value for value in arguments)
        )
        message = ctypes.create_string_buffer(1024)
        with _lock:
            self._launch(
                self._entry, packed, (ctypes.c_uint * 3)(*shape.grid), (ctypes.c_uint * 3)(*shape.block),
                ctypes.c_size_t(shape.shared_bytes), int(descending), ctypes.c_void_p(_stack_address()),
                ctypes.c_size_t(STACK_BYTES), message, ctypes.c_size_t(len(message)),
            )  # fmt: skip
        if message.value:
            raise EmulationError(
                f"{self.name}: {message.value.decode()}{self._quoted(message.value.decode())}"
            )

    def _quoted(self, message: str) -> str:
        """The lines of the compiled text that `message` names."""
        lines = self._source.read_text(encoding="utf-8").splitlines()
        named = sorted({int(number) for number in re.findall(r"line (\d+)", message)})
        return "".join(f"\n  {number}: {lines[number - 1].strip()}" for number in named)


def _stack_address() -> int:
    """The address of the stacks all launches use; memory is taken only where a thread touches it."""
    if not _stacks:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        memory = mmap.mmap(-1, MAXIMAL_THREADS * STACK_BYTES, flags=flags)
        _stacks.append((memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))))
    return _stacks[0][1]

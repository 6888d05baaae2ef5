"""Launching a compiled kernel text: arguments by address, a grid, an order of its threads."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launch_refusals import SHARED_BYTES, THREADS, WARP, refusal

from bppsa_cupy.raw_kernels.architectures import Architecture
from bppsa_cupy.raw_kernels.kernel import LaunchShape
from emulator.build import EmulationError
from emulator.symbols import Memory, line_of, static_shared

STACK_BYTES = 256 * 1024
#: Orders of blocks and threads; any other number is the seed of a random one.
ASCENDING, DESCENDING = 0, 1

#: Blocks of a cooperative launch at most (scheduler.hpp).
MOST_BLOCKS = 64

_lock = threading.Lock()


class Library:
    """The shared object of one kernel; launches are made one at a time.

    architecture  of the GPU that launches are held to
    opted_in      bytes of shared memory, static and dynamic together, that a launch may take
    cluster       blocks of a cluster, as the text says
    cooperative   whether all blocks of a launch wait for one another, and run as one cluster
    finds_races   whether it was compiled with a look-out for races
    """

    def __init__(self, name: str, path: Path, architecture: Architecture) -> None:
        self.name, self.architecture = name, architecture
        self.opted_in = SHARED_BYTES
        self.counts_sectors = False
        self._path = path
        self._handle = handle = ctypes.CDLL(str(path))
        self._launch = handle.emulator_launch
        self._launch.restype = None
        self._entry = ctypes.cast(handle.emulator_entry, ctypes.c_void_p)
        self._bound = ctypes.c_int.in_dll(handle, "emulator_launch_bound").value
        self.cluster = ctypes.c_int.in_dll(handle, "emulator_cluster").value
        address = ctypes.cast(self._launch, ctypes.c_void_p).value or 0
        self.cooperative = ctypes.c_bool.in_dll(handle, "emulator_cooperative").value
        self._shared = static_shared(path, "emulator_launch", address)
        self.static_shared_bytes = sum(memory.nbytes for memory in self._shared)
        places = [number for memory in self._shared for number in (memory.address, memory.nbytes)]
        self._statics = (ctypes.c_size_t * len(places))(*places)
        self.finds_races = hasattr(handle, "emulator_watch")
        if self.finds_races:
            self._watch = handle.emulator_watch
            self._watch.restype = None

    def count_sectors(self, counts: bool = True) -> None:
        """Whether sectors of accesses are counted from here on, where the library finds races."""
        self.counts_sectors = counts
        self._handle.emulator_count_sectors(int(counts))

    def turn(self, array: str, batch: int, width: int) -> None:
        """Count sectors of an array (..., batch, width) of float32 as if it were (..., width, batch)."""
        self._handle.emulator_turn(array.encode(), ctypes.c_size_t(batch), ctypes.c_size_t(width))

    def sectors(self, array: str) -> tuple[int, int]:
        """Accesses of warps to an array since `count_sectors`, and the 32-byte sectors that they took."""
        counted = (ctypes.c_uint64 * 2)()
        self._handle.emulator_sectors(array.encode(), counted)
        return counted[0], counted[1]

    def check_shape(self, shape: LaunchShape) -> None:
        """Raise EmulationError where a GPU of the architecture would refuse the launch, or the text's launch
        bound is below its block."""
        total = shape.shared_bytes + self.static_shared_bytes
        limits = {"asked_for": self.opted_in, "cluster": self.cluster}
        why = refusal(self.architecture, shape.grid, shape.block, total, **limits)
        if why is None and math.prod(shape.block) > self._bound:
            why = f"a block of {shape.block} threads is launched, it takes at most {self._bound}"
        if why is None and self.cluster > 1 and math.prod(shape.block) % WARP:
            why = (
                f"a cluster's blocks of {shape.block} threads are no whole warps, as the emulator takes them"
            )
        if why is None and self.cooperative and math.prod(shape.grid) > MOST_BLOCKS:
            why = f"a cooperative launch has {shape.grid} blocks, the emulator takes {MOST_BLOCKS}"
        if why is not None:
            raise EmulationError(f"{self.name}: {why}")

    def run_grid(
        self,
        arguments: Sequence[Any],
        shape: LaunchShape,
        order: int = ASCENDING,
        watched: Sequence[Memory] = (),
    ) -> None:
        """Run the grid. `arguments` are ctypes values: pointers for arrays, numbers for scalars.

        order    of blocks and threads: ASCENDING, DESCENDING, or the seed of a random one
        watched  arrays in which a race is an error, beside shared memory, where the library finds races

        Raises EmulationError where threads wait for others that do not come, and at the first race.
        """
        self.check_shape(shape)
        packed = (ctypes.c_void_p * max(len(arguments), 1))(
            *(ctypes.cast(ctypes.pointer(value), ctypes.c_void_p).value for value in arguments)
        )
        message = ctypes.create_string_buffer(1024)
        blocks = math.prod(shape.grid) if self.cooperative else self.cluster
        stacks = _stack_address(blocks * math.prod(shape.block))
        with _lock:
            if self.finds_races:
                for is_shared, memories in enumerate((watched, self._shared)):
                    for name, address, nbytes, word in memories:
                        self._watch(
                            name.encode(), ctypes.c_size_t(address), ctypes.c_size_t(nbytes), word, is_shared
                        )
            self._launch(
                self._entry, packed, (ctypes.c_uint * 3)(*shape.grid), (ctypes.c_uint * 3)(*shape.block),
                ctypes.c_uint(blocks), self._statics, ctypes.c_size_t(len(self._shared)),
                ctypes.c_size_t(shape.shared_bytes), ctypes.c_uint64(order),
                ctypes.c_void_p(stacks), ctypes.c_size_t(STACK_BYTES),
                message, ctypes.c_size_t(len(message)),
            )  # fmt: skip
        if message.value:
            raise EmulationError(f"{self.name}: {self._with_lines(message.value.decode())}")

    def _with_lines(self, message: str) -> str:
        """`message`, with the line for each place in the program, and the text of the lines that it names."""
        message = re.sub(r"@([0-9a-f]+)", lambda at: f"line {line_of(self._path, int(at[1], 16))}", message)
        lines = self._path.with_suffix(".cpp").read_text(encoding="utf-8").splitlines()
        named = sorted({int(number) for number in re.findall(r"line (\d+)", message)} - {0})
        return message + "".join(f"\n  {number}: {lines[number - 1].strip()}" for number in named)


@functools.cache
def _stacks(bytes_of_all: int) -> tuple[mmap.mmap, int]:
    """The stacks that launches use, and their address; memory is taken only where a thread touches it."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    memory = mmap.mmap(-1, bytes_of_all, flags=flags)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _stack_address(threads: int) -> int:
    return _stacks(-(-threads // THREADS) * THREADS * STACK_BYTES)[1]

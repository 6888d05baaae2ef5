"""What a GPU of each architecture takes of a launch.

Source: NVIDIA, CUDA C++ Programming Guide, "Compute Capabilities", the table of technical specifications per
compute capability. What a launch that takes more is refused with is of the driver's `cuLaunchKernel`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

KIB = 1024

#: Of every architecture: blocks of a grid and threads of a block by direction, threads of a block in all,
#: registers of a block and of a multiprocessor, and shared memory of a block that does not ask for more.
GRID, BLOCK = (2**31 - 1, 65535, 65535), (1024, 1024, 64)
THREADS, REGISTERS, SHARED_BYTES = 1024, 65536, 48 * KIB
#: Registers of a thread at most, and those that a warp gets at a time.
REGISTERS_OF_THREAD, REGISTERS_AT_ONCE = 255, 256
WARP = 32


@dataclass(frozen=True)
class Architecture:
    """The limits of one architecture, where they are its own.

    name          as NVRTC takes it
    shared_bytes  of shared memory that a block can ask for, static and dynamic together
    multiprocessor_bytes, multiprocessor_threads  shared memory and threads of a multiprocessor
    """

    name: str
    shared_bytes: int
    multiprocessor_bytes: int
    multiprocessor_threads: int

    def refusal(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        *,
        asked_for: int = SHARED_BYTES,
        registers: int = 0,
    ) -> str | None:
        """Why the driver refuses a launch, and its error; None where it does not.

        shared_bytes  that a block takes, static and dynamic together
        asked_for     that a block can have: SHARED_BYTES, or what the kernel was allowed by its attribute
        registers     of a thread; 0: not known
        """
        threads, given = math.prod(block), min(asked_for, self.shared_bytes)
        taken = registers_of_block(threads, registers)
        invalid, scarce = "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
        if not _within(grid, GRID):
            words = f"a grid of {tuple(grid)} blocks is launched, {self.name} takes {GRID} ({invalid})"
        elif not _within(block, BLOCK) or threads > THREADS:
            limits = f"{BLOCK}, {THREADS} in all"
            words = f"a block of {tuple(block)} threads is launched, {self.name} takes {limits} ({invalid})"
        elif shared_bytes > given:
            words = f"a block takes {shared_bytes} bytes of shared memory, it gets {given} ({invalid})"
        elif taken > REGISTERS:
            words = f"a block of {threads} threads takes {taken} registers, {REGISTERS} are there ({scarce})"
        else:
            return None
        return words


def registers_of_block(threads: int, registers: int) -> int:
    """Registers that a block of so many threads takes: a warp gets whole units of them."""
    of_warp = -(-registers * WARP // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
    return -(-threads // WARP) * of_warp


def _within(extents: Sequence[int], limits: Sequence[int]) -> bool:
    return all(0 < extent <= limit for extent, limit in zip(extents, limits, strict=True))


#: Turing, Ampere (data centre, desktop), Ada, Hopper, Blackwell (desktop).
ARCHITECTURES = {
    name: Architecture(name, block * KIB, multiprocessor * KIB, threads)
    for name, block, multiprocessor, threads in (
        ("sm_75", 64, 64, 1024),
        ("sm_80", 163, 164, 2048),
        ("sm_86", 99, 100, 1536),
        ("sm_89", 99, 100, 1536),
        ("sm_90", 227, 228, 2048),
        ("sm_120", 99, 100, 1536),
    )
}

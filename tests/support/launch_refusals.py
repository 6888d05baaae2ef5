"""Why a driver refuses a launch.

Source: NVIDIA, CUDA C++ Programming Guide, "Compute Capabilities", the table of technical specifications per
compute capability; the errors are those of the driver's `cuLaunchKernel`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bppsa_cupy.raw_kernels.architectures import KIB, Architecture

#: Of every architecture: blocks of a grid and threads of a block by direction, threads of a block in all,
#: registers of a block and of a multiprocessor, and shared memory of a block that does not ask for more.
GRID, BLOCK = (2**31 - 1, 65535, 65535), (1024, 1024, 64)
THREADS, REGISTERS, SHARED_BYTES = 1024, 65536, 48 * KIB
#: Registers of a thread at most, and those that a warp gets at a time.
REGISTERS_OF_THREAD, REGISTERS_AT_ONCE = 255, 256
WARP = 32


def refusal(
    architecture: Architecture,
    grid: Sequence[int],
    block: Sequence[int],
    shared_bytes: int,
    *,
    asked_for: int = SHARED_BYTES,
    registers: int = 0,
    cluster: int = 1,
) -> str | None:
    """Why the driver refuses a launch, and its error; None where it does not.

    shared_bytes  that a block takes, static and dynamic together
    asked_for     that a block can have: SHARED_BYTES, or what the kernel was allowed by its attribute
    registers     of a thread; 0: not known
    cluster       blocks of a cluster
    """
    threads, given = math.prod(block), min(asked_for, architecture.shared_bytes)
    taken = registers_of_block(threads, registers)
    invalid, scarce = "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
    if not _within(grid, GRID):
        words = f"a grid of {tuple(grid)} blocks is launched, {architecture.name} takes {GRID} ({invalid})"
    elif not _within(block, BLOCK) or threads > THREADS:
        limits = f"{BLOCK}, {THREADS} in all"
        words = (
            f"a block of {tuple(block)} threads is launched, {architecture.name} takes {limits} ({invalid})"
        )
    elif cluster > architecture.cluster_blocks or grid[0] % cluster:
        limit = (
            f"{architecture.name} has clusters of up to {architecture.cluster_blocks}, which share out a grid"
        )
        words = (
            f"clusters of {cluster} blocks are launched in a grid of {tuple(grid)}, {limit} "
            "(CUDA_ERROR_INVALID_CLUSTER_SIZE)"
        )
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

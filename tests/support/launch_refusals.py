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
WARP = 32


def refusal(
    architecture: Architecture, grid: Sequence[int], block: Sequence[int], shared_bytes: int, *,
    asked_for: int = SHARED_BYTES, cluster: int = 1,
) -> str | None:  # fmt: skip
    """Why the driver refuses a launch, and its error; None where it does not.

    shared_bytes  that a block takes, static and dynamic together
    asked_for     that a block can have: SHARED_BYTES, or what the kernel was allowed by its attribute
    cluster       blocks of a cluster
    """
    name, limit = architecture.name, min(asked_for, architecture.shared_bytes)
    error = "CUDA_ERROR_INVALID_VALUE"
    if not _within(grid, GRID):
        return f"a grid of {tuple(grid)} blocks is launched, {name} takes {GRID} ({error})"
    if not _within(block, BLOCK) or math.prod(block) > THREADS:
        limits = f"{BLOCK}, {THREADS} in all"
        return f"a block of {tuple(block)} threads is launched, {name} takes {limits} ({error})"
    if cluster > architecture.cluster_blocks or grid[0] % cluster:
        return (
            f"clusters of {cluster} blocks are launched in a grid of {tuple(grid)}, {name} has clusters of "
            f"up to {architecture.cluster_blocks}, which share out a grid (CUDA_ERROR_INVALID_CLUSTER_SIZE)"
        )
    if shared_bytes > limit:
        return f"a block takes {shared_bytes} bytes of shared memory, it gets {limit} ({error})"
    return None


def _within(extents: Sequence[int], limits: Sequence[int]) -> bool:
    return all(0 < extent <= limit for extent, limit in zip(extents, limits, strict=True))

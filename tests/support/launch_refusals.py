"""Why a driver refuses a launch.

Source: NVIDIA, CUDA C++ Programming Guide, "Compute Capabilities", the table of technical specifications per
compute capability; the errors are those of the driver's `cuLaunchKernel`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bppsa_cupy.raw_kernels.architectures import KIB, Architecture
from bppsa_cupy.raw_kernels.kernel import Kernel

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


#: Scalars by name: the longest recurrent case, a layer of VGG-11, and rows of its Jacobian. Names that
#: are missing, such as flags, are 0.
SIZES: Mapping[str, int] = {
    "batch": 16, "steps": 30000, "hidden": 20, "chunk": 71, "chunks": 423, "states": 1, "size": 1 << 20,
    "first": 1, "sets": 1, "walks": 16, "features": 4096, "count": 1 << 20, "unit": 1024, "groups": 1,
    "total": 1, "rows": 1000, "columns": 1000, "inner": 1000, "nnz": 100000, "entries": 100000,
    "terms": 1000000, "sources": 4096, "a_nnz": 100000, "b_nnz": 100000, "c_nnz": 100000, "a_batched": 1,
    "b_batched": 1, "batched": 1, "classes": 10, "windows": 16384, "planes": 1024, "channels": 64,
    "positions": 1024, "affine": 0, "in_channels": 64, "out_channels": 128, "in_height": 16, "in_width": 16,
    "out_height": 16, "out_width": 16, "kernel_height": 3, "kernel_width": 3, "stride_y": 1, "stride_x": 1,
    "padding_y": 1, "padding_x": 1, "dilation_y": 1, "dilation_x": 1, "biased": 1, "parts": 64,
    "inputs": 20, "outputs": 20,
}  # fmt: skip

#: Kernels in which a name has another meaning.
SIZES_OF: Mapping[str, Mapping[str, int]] = {
    "newton_mismatch": {"rows": 20},
    "newton_advance": {"rows": 20},
    "csr_spmv": {"affine": 1},
    "batch_norm_forward": {"affine": 1},
    "batch_norm_vjp": {"affine": 1, "coupled": 1},
    "sequence_project": {"rows": 20},
    "sequence_gather": {"features": 20, "total": 20},
    "sequence_scatter": {"features": 20, "rows": 20, "total": 20},
    "sequence_gradients": {"delta_rows": 20, "state_rows": 20, "value_rows": 20, "staged": 16},
    "sequence_weight_gradient": {
        "rows": 20, "columns": 20, "bands": 1, "delta_rows": 20, "value_rows": 20, "first": 0, "shifted": 1
    },
}  # fmt: skip

#: Scalars of kernels for a single step.
SIZES_OF_STEPS: Mapping[str, int] = {"hidden": 512}


def scalars_of(kernel: Kernel, **others: int) -> dict[str, Any]:
    """Return the scalars of a kernel by name: `others`, else the tables above."""
    names = [p.name for p in kernel.parameters if not p.is_array]
    wide = SIZES_OF_STEPS if kernel.name.endswith(("_forward_step", "_backward_step")) else {}
    known = {**SIZES, **wide, **SIZES_OF.get(kernel.name, {}), **others}
    return {name: known.get(name, 0) for name in names}

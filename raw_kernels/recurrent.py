"""What the twins and launches of recurrent kernels share: lanes of samples, and launch shapes."""

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape
from bppsa_cupy.raw_kernels.twin import twin

#: Samples that one pass over time takes: the SIMD lanes of its innermost loops.
LANES = 16


@twin()
def lane_blocks(batch):
    """How many blocks of LANES samples a batch has."""
    return (batch + LANES - 1) // LANES


def row_threads(rows):
    """Threads of a block that has one a row: whole warps, as many as a block takes."""
    return min(1024, max(32, -(-rows // 32) * 32))


def block_per(count, rows, values):
    """A block for each of `count` walks, a thread a row, `values` reals of shared memory (of 8 bytes)."""
    return LaunchShape((min(count, MAXIMAL_GRID), 1, 1), (row_threads(rows), 1, 1), values * 8)


def padded(hidden):
    """Elements of a state in shared memory: see recurrent.cuh."""
    return next((width for width in (8, 20, 32, 64) if hidden <= width), hidden)

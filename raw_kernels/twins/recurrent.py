"""Launch shapes of the recurrent kernels, and sizes of their arrays."""

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape

#: Threads of a block at most: with them a thread may take all 255 registers.
THREADS = 256


def block_per(count, rows, values, itemsize):
    """A block for each of `count` walks, a thread a row in whole warps, `values` reals of `itemsize` bytes of
    shared memory."""
    threads = min(THREADS, max(32, -(-rows // 32) * 32))
    return LaunchShape((min(count, MAXIMAL_GRID), 1, 1), (threads, 1, 1), values * itemsize)


def padded(hidden):
    """Elements of a state in shared memory, as recurrent.cuh has it."""
    return next((width for width in (8, 20, 32, 64) if hidden <= width), hidden)

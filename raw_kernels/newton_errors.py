"""How far Newton's iteration is: steps by the sizes of states, mismatches by those of samples."""

from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.scans.batched import one_block_per
from bppsa_cupy.system.compiled import compiled

#: Threads of a block, which has a state of a sample; the .cu text counts on it.
THREADS = 256


@compiled()
def larger(a, b):
    """The larger one, NaN where one is."""
    return a if a > b or a != a else b


@compiled(parallel=True)
def newton_errors(ends, mismatch, step, errors, chunks, states, hidden, batch, tolerance, least):
    real = ends.dtype.type
    for item in prange(states * batch):
        state, lane = item // batch, item % batch
        error, missed, largest = real(0), real(0), real(0)
        for k in range(chunks):
            size, moved = real(0), real(0)
            for u in range(hidden):
                row = state * hidden + u
                place = (k * states * hidden + row) * batch + lane
                size = larger(abs(ends[(row * chunks + k) * batch + lane]), size)
                moved = larger(abs(step[place]), moved)
                missed = larger(abs(mismatch[place]), missed)
            allowed = real(tolerance) * size
            error = larger(moved / (real(least) if allowed < real(least) else allowed), error)
            largest = larger(size, largest)
        errors[item] = error
        errors[states * batch + item] = missed / (real(least) if largest < real(least) else largest)


KERNEL = kernel(newton_errors, lambda s: one_block_per(s["states"] * s["batch"], THREADS))

"""By how much the ends of chunks miss the states assumed after them."""

from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def newton_mismatch(starts, ends, mismatch, chunks, rows, batch):
    for chunk in prange(chunks):
        for row in range(rows):
            for lane in range(batch):
                place = (row * chunks + chunk) * batch + lane
                missed = ends[place] - starts[place + batch] if chunk + 1 < chunks else starts.dtype.type(0)
                mismatch[(chunk * rows + row) * batch + lane] = missed


KERNEL = kernel(newton_mismatch, lambda s: one_thread_per(s["chunks"] * s["rows"] * s["batch"]))

"""The states that are assumed before chunks, by Newton's step."""

from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def newton_advance(ends, mismatch, step, starts, chunks, rows, batch):
    for chunk in prange(chunks - 1):
        for row in range(rows):
            for lane in range(batch):
                place, item = (row * chunks + chunk) * batch + lane, (chunk * rows + row) * batch + lane
                carried = step[item] - mismatch[item]
                if carried - carried != 0:
                    carried = starts.dtype.type(0)
                starts[place + batch] = ends[place] + carried


KERNEL = kernel(newton_advance, lambda s: one_thread_per((s["chunks"] - 1) * s["rows"] * s["batch"]))

"""Values by index."""

from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.system.compiled import compiled

# ---- gather_fill ----


@kernel(lambda s: one_thread_per(s["entries"]))
@compiled(parallel=True)
def gather_fill(source, map, values, sources, entries):
    for entry in prange(entries):
        values[entry] = source[map[entry]]

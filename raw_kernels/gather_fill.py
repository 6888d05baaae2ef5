"""Values of a transposed Jacobian that is made of weights alone (paper, algorithm 4)."""

from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def gather_fill(source, map, values, sources, entries):
    for entry in prange(entries):
        values[entry] = source[map[entry]]


KERNEL = kernel(gather_fill, "entries")

"""Values of a transposed Jacobian that is made of weights alone (paper, algorithm 4)."""

from numba import prange

from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.twins.twin import twin


@twin(parallel=True)
def gather_fill(source, map, values, sources, entries):
    for entry in prange(entries):
        values[entry] = source[map[entry]]


KERNEL = Kernel(
    name="gather_fill",
    parameters=(
        array_in("source", "real", "sources"),
        array_in("map", "index", "entries"),
        array_out("values", "real", "entries"),
        scalar("sources"),
        scalar("entries"),
    ),
    launch=lambda s: one_thread_per(s["entries"]),
    twin=gather_fill,
)

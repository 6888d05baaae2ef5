"""Values of max-pooling's transposed Jacobian."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.twin import twin


@twin(parallel=True)
def max_pool2d_fill(indices, window, candidate, values, windows, entries, batch):
    for entry in prange(entries):
        for sample in range(batch):
            hit = indices[sample * windows + np.int64(window[entry])] == np.int32(candidate[entry])
            values[np.int64(entry) * batch + sample] = 1 if hit else 0


KERNEL = Kernel(
    name="max_pool2d_fill",
    parameters=(
        array_in("indices", "int32", "batch * windows"),
        array_in("window", "index", "entries"),
        array_in("candidate", "index", "entries"),
        array_out("values", "real", "entries * batch"),
        scalar("windows"),
        scalar("entries"),
        scalar("batch"),
    ),
    launch=lambda s: one_thread_per(s["entries"] * s["batch"]),
    twin=max_pool2d_fill,
)

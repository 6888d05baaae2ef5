"""Newton's step for the states at the boundaries of chunks, forward in time."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.scans.boundaries import launch, scaled
from bppsa_cupy.raw_kernels.twins.scans.walks import element_of
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def newton_scan(maps, exponents, mismatch, step, chunks, states, hidden, sets, batch, damping):
    size, walks = states * hidden, sets * batch
    for w in prange(walks):
        now, later = np.zeros(size, maps.dtype), np.empty(size, maps.dtype)
        for k in range(chunks):
            item = (w // batch * chunks + k) * batch + w % batch
            for j in range(size):
                total = maps.dtype.type(0)
                for i in range(size):
                    total += maps[(item * size + j) * size + i] * now[i]
                grown = maps.dtype.type(scaled(total, exponents[item * size + j]))
                place = k * size * walks + element_of(j, w, hidden, sets, batch)
                later[j] = mismatch[place] + maps.dtype.type(damping) * grown
                step[place] = later[j]
            now, later = later, now


KERNEL = kernel(newton_scan, launch)

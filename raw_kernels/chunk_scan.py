"""Gradients at the boundaries of chunks, from the chunks' maps."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.scans.boundaries import launch, scaled
from bppsa_cupy.raw_kernels.twins.scans.walks import element_of
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def chunk_scan(maps, exponents, offsets, last, boundary, chunks, states, hidden, sets, batch, affine):
    size, walks = states * hidden, sets * batch
    plane = size * walks
    for w in prange(walks):
        values, sums = np.empty(size, last.dtype), np.empty(size, last.dtype)
        for i in range(size):
            place = element_of(i, w, hidden, sets, batch)
            values[i] = last[place]
            boundary[(chunks - 1) * plane + place] = values[i]
        for back in range(chunks - 1):
            k = chunks - 2 - back
            item = k * walks + w
            for i in range(size):
                sums[i] = offsets[k * plane + element_of(i, w, hidden, sets, batch)] if affine else 0
            for j in range(size):
                value = last.dtype.type(scaled(values[j], exponents[item * size + j]))
                for i in range(size):
                    sums[i] += maps[(item * size + j) * size + i] * value
            values, sums = sums, values
            for i in range(size):
                boundary[k * plane + element_of(i, w, hidden, sets, batch)] = values[i]


KERNEL = kernel(chunk_scan, launch)

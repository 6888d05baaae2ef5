"""Gradients at the boundaries of chunks, from the chunks' maps."""

import math

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import block_per, kernel
from bppsa_cupy.system.compiled import compiled


@compiled()
def scaled(value, exponent):
    """value times a power of two."""
    return math.ldexp(float(value), exponent)


@compiled(parallel=True)
def chunk_scan(maps, exponents, offsets, last, boundary, chunks, size, batch, affine):
    for b in prange(batch):
        values, sums = np.empty(size, last.dtype), np.empty(size, last.dtype)
        for i in range(size):
            values[i] = last[i * batch + b]
            boundary[((chunks - 1) * size + i) * batch + b] = values[i]
        for back in range(chunks - 1):
            k = chunks - 2 - back
            item = k * batch + b
            for i in range(size):
                sums[i] = offsets[(k * size + i) * batch + b] if affine else 0
            for j in range(size):
                value = last.dtype.type(scaled(values[j], exponents[item * size + j]))
                for i in range(size):
                    sums[i] += maps[(item * size + j) * size + i] * value
            values, sums = sums, values
            for i in range(size):
                boundary[(k * size + i) * batch + b] = values[i]


KERNEL = kernel(chunk_scan, lambda s: block_per(s["batch"], s["size"], 2 * max(40, s["size"]), s["itemsize"]))

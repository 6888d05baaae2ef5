"""Values of every step's transposed Jacobian of a tanh or ReLU cell."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def rnn_fill(state, weight_hh, lengths, values, steps, hidden, batch, relu):
    zero, one = state.dtype.type(0), state.dtype.type(1)
    H, B = np.uint64(hidden), np.uint64(batch)
    for t in prange(steps):
        source, target = np.uint64(t) * H * B, np.uint64(t) * H * H * B
        for i in range(H):
            for j in range(H):
                w, s, v = weight_hh[j * H + i], source + j * B, target + (i * H + j) * B
                for b in range(B):
                    h = state[s + b]
                    slope = (one if h > zero else zero) if relu else one - h * h
                    values[v + b] = w * slope
                for b in range(B):
                    if t >= lengths[b]:
                        values[v + b] = one if i == j else zero


KERNEL = kernel(rnn_fill, "steps * hidden * hidden * batch")

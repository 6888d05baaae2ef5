"""Values of every step's transposed Jacobian of a GRU cell."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def gru_fill(state, gates, initial, weight_hh, lengths, values, steps, hidden, batch, reverse):
    zero, one = state.dtype.type(0), state.dtype.type(1)
    H, B = np.uint64(hidden), np.uint64(batch)
    plane, block = H * B, H * H
    for t in prange(steps):
        before, source = state, np.uint64(t + 1 if reverse else t - 1) * plane
        if t == (steps - 1 if reverse else 0):
            before, source = initial, np.uint64(0)
        origin, target = np.uint64(4 * t) * plane, np.uint64(t) * block * B
        for i in range(H):
            for j in range(H):
                of_r = origin + j * B
                of_z, of_n, of_m = of_r + plane, of_r + plane + plane, of_r + np.uint64(3) * plane
                h, v, w = source + j * B, target + (i * H + j) * B, j * H + i
                w_r, w_z, w_n = weight_hh[w], weight_hh[w + block], weight_hh[w + block + block]
                own = one if i == j else zero
                for b in range(B):
                    r, z, n = gates[of_r + b], gates[of_z + b], gates[of_n + b]
                    values[v + b] = (
                        own * z
                        + (before[h + b] - n) * z * (one - z) * w_z
                        + (one - z) * (one - n * n) * (r * w_n + gates[of_m + b] * r * (one - r) * w_r)
                    )
                for b in range(B):
                    if t >= lengths[b]:
                        values[v + b] = own


KERNEL = kernel(gru_fill, "steps * hidden * hidden * batch")

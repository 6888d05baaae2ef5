"""Values of every step's transposed Jacobian of a tanh or ReLU cell."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.twins.twin import twin


@twin(parallel=True)
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


KERNEL = Kernel(
    name="rnn_fill",
    parameters=(
        array_in("state", "real", "steps * hidden * batch"),
        array_in("weight_hh", "real", "hidden * hidden"),
        array_in("lengths", "int64", "batch"),
        array_out("values", "real", "steps * hidden * hidden * batch"),
        scalar("steps"),
        scalar("hidden"),
        scalar("batch"),
        scalar("relu", "flag"),
    ),
    launch=lambda s: one_thread_per(s["steps"] * s["hidden"] * s["hidden"] * s["batch"]),
    twin=rnn_fill,
)

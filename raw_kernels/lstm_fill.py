"""Values of every step's transposed Jacobian of an LSTM cell over (h, c)."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.activations import tanh
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def lstm_fill(state, gates, initial, weight_hh, lengths, values, steps, hidden, batch, reverse):
    zero, one = state.dtype.type(0), state.dtype.type(1)
    H, B, two = np.uint64(hidden), np.uint64(batch), np.uint64(2)
    plane, block = H * B, H * H
    entries = two * (block + H)
    for t in prange(steps):
        before, source = state, np.uint64(2 * (t + 1 if reverse else t - 1) + 1) * plane
        if t == (steps - 1 if reverse else 0):
            before, source = initial, plane
        origin, now, target = (
            np.uint64(4 * t) * plane,
            np.uint64(2 * t + 1) * plane,
            np.uint64(t) * entries * B,
        )
        for j in range(H):
            of_i = origin + j * B
            of_f, of_g, of_o = of_i + plane, of_i + plane + plane, of_i + np.uint64(3) * plane
            c, c_now = source + j * B, now + j * B
            for i in range(H):
                by_h, by_c = target + (i * two * H + j) * B, target + ((i * two + np.uint64(1)) * H + j) * B
                w = j * H + i
                w_i, w_f, w_g = weight_hh[w], weight_hh[w + block], weight_hh[w + block + block]
                w_o, own = weight_hh[w + np.uint64(3) * block], one if i == j else zero
                for b in range(B):
                    gate, f, g, out = gates[of_i + b], gates[of_f + b], gates[of_g + b], gates[of_o + b]
                    y = tanh(state[c_now + b])
                    value = (
                        before[c + b] * f * (one - f) * w_f
                        + g * gate * (one - gate) * w_i
                        + gate * (one - g * g) * w_g
                    )
                    values[by_c + b] = value
                    values[by_h + b] = out * (one - y * y) * value + y * out * (one - out) * w_o
                for b in range(B):
                    if t >= lengths[b]:
                        values[by_h + b] = own
                        values[by_c + b] = zero
            diagonal = target + (two * block + two * j) * B
            for b in range(B):
                y = tanh(state[c_now + b])
                values[diagonal + b] = gates[of_o + b] * (one - y * y) * gates[of_f + b]
                values[diagonal + B + b] = gates[of_f + b]
            for b in range(B):
                if t >= lengths[b]:
                    values[diagonal + b] = zero
                    values[diagonal + B + b] = one


KERNEL = kernel(lstm_fill, "2 * steps * (hidden + 1) * hidden * batch")

"""One direction of a GRU layer: all states, and the gates its way back needs."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.activations import sigmoid, tanh
from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, scalar
from bppsa_cupy.raw_kernels.lanes import LANES, lane_blocks, multiply_lanes
from bppsa_cupy.raw_kernels.recurrent import block_per, padded
from bppsa_cupy.raw_kernels.twin import twin


@twin()
def _walk(
    projected, weight_hh, bias_n, initial, lengths, state, gates, final, steps, hidden, batch, reverse, first
):
    count = np.uint64(min(LANES, batch - first))
    H, B, start = np.uint64(hidden), np.uint64(batch), np.uint64(first)
    plane = H * B
    least = lengths[first : first + LANES].min()
    sums = np.empty(3 * hidden * LANES, projected.dtype)
    zero, one = projected.dtype.type(0), projected.dtype.type(1)
    now = initial
    source = start
    for s in range(steps):
        t = steps - 1 - s if reverse else s
        target = np.uint64(t) * plane + start
        multiply_lanes(weight_hh, 0, hidden, 1, 3 * hidden, hidden, now, source, batch, count, sums, 0)
        for j in range(H):
            o, before = target + j * B, source + j * B
            of_r = np.uint64(3 * t) * plane + start + j * B
            of_z, of_n = of_r + plane, of_r + plane + plane
            kept_r = np.uint64(4 * t) * plane + start + j * B
            kept_z, kept_n, kept_m = kept_r + plane, kept_r + plane + plane, kept_r + np.uint64(3) * plane
            i = j * np.uint64(LANES)
            i_z, i_n = i + H * np.uint64(LANES), i + np.uint64(2) * H * np.uint64(LANES)
            bias = bias_n[j]
            for lane in range(count):
                r = sigmoid(projected[of_r + lane] + sums[i + lane])
                m = sums[i_n + lane] + bias
                gates[kept_r + lane] = r
                gates[kept_m + lane] = m
                gates[kept_n + lane] = tanh(projected[of_n + lane] + r * m)
            for lane in range(count):
                z = sigmoid(projected[of_z + lane] + sums[i_z + lane])
                gates[kept_z + lane] = z
                state[o + lane] = (one - z) * gates[kept_n + lane] + z * now[before + lane]
            if t >= least:
                for lane in range(count):
                    if t >= lengths[start + lane]:
                        state[o + lane] = now[before + lane]
                        gates[kept_r + lane] = zero
                        gates[kept_z + lane] = zero
                        gates[kept_n + lane] = zero
                        gates[kept_m + lane] = zero
        now = state
        source = target
    for j in range(H):
        for lane in range(count):
            final[start + j * B + lane] = now[source + j * B + lane]


@twin(parallel=True)
def gru_forward(
    projected, weight_hh, bias_n, initial, lengths, state, gates, final, steps, hidden, batch, reverse
):
    for block in prange(lane_blocks(batch)):
        _walk(
            projected, weight_hh, bias_n, initial, lengths, state, gates, final, steps, hidden, batch,
            reverse, block * LANES,
        )  # fmt: skip


KERNEL = Kernel(
    name="gru_forward",
    parameters=(
        array_in("projected", "real", "3 * steps * hidden * batch"),
        array_in("weight_hh", "real", "3 * hidden * hidden"),
        array_in("bias_n", "real", "hidden"),
        array_in("initial", "real", "hidden * batch"),
        array_in("lengths", "int64", "batch"),
        array_out("state", "real", "steps * hidden * batch"),
        array_out("gates", "real", "4 * steps * hidden * batch"),
        array_out("final", "real", "hidden * batch"),
        scalar("steps"),
        scalar("hidden"),
        scalar("batch"),
        scalar("reverse", "flag"),
    ),
    launch=lambda s: block_per(s["batch"], 3 * s["hidden"], padded(s["hidden"]) + 3 * s["hidden"]),
    twin=gru_forward,
)

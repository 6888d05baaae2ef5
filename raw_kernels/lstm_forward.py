"""One direction of an LSTM layer: all states, and the gates its way back needs."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.activations import sigmoid, tanh
from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, scalar
from bppsa_cupy.raw_kernels.lanes import LANES, lane_blocks, multiply_lanes
from bppsa_cupy.raw_kernels.recurrent import block_per, padded
from bppsa_cupy.raw_kernels.twin import twin


@twin()
def _walk(projected, weight_hh, initial, lengths, state, gates, final, steps, hidden, batch, reverse, first):
    count = np.uint64(min(LANES, batch - first))
    H, B, start = np.uint64(hidden), np.uint64(batch), np.uint64(first)
    plane = H * B
    least = lengths[first : first + LANES].min()
    sums = np.empty(4 * hidden * LANES, projected.dtype)
    zero = projected.dtype.type(0)
    now = initial
    source = start
    for s in range(steps):
        t = steps - 1 - s if reverse else s
        target, kept = np.uint64(2 * t) * plane + start, np.uint64(4 * t) * plane + start
        multiply_lanes(weight_hh, 0, hidden, 1, 4 * hidden, hidden, now, source, batch, count, sums, 0)
        for j in range(np.uint64(4) * H):
            o, i = kept + j * B, j * np.uint64(LANES)
            if j // H == 2:
                for lane in range(count):
                    gates[o + lane] = tanh(projected[o + lane] + sums[i + lane])
            else:
                for lane in range(count):
                    gates[o + lane] = sigmoid(projected[o + lane] + sums[i + lane])
        for j in range(H):
            of_i = kept + j * B
            of_f, of_g, of_o = of_i + plane, of_i + plane + plane, of_i + np.uint64(3) * plane
            h, c, before = target + j * B, target + plane + j * B, source + plane + j * B
            for lane in range(count):
                state[c + lane] = (
                    gates[of_f + lane] * now[before + lane] + gates[of_i + lane] * gates[of_g + lane]
                )
            for lane in range(count):
                state[h + lane] = gates[of_o + lane] * tanh(state[c + lane])
            if t >= least:
                for lane in range(count):
                    if t >= lengths[start + lane]:
                        state[h + lane] = now[source + j * B + lane]
                        state[c + lane] = now[before + lane]
                        gates[of_i + lane] = zero
                        gates[of_f + lane] = zero
                        gates[of_g + lane] = zero
                        gates[of_o + lane] = zero
        now = state
        source = target
    for j in range(np.uint64(2) * H):
        for lane in range(count):
            final[start + j * B + lane] = now[source + j * B + lane]


@twin(parallel=True)
def lstm_forward(projected, weight_hh, initial, lengths, state, gates, final, steps, hidden, batch, reverse):
    for block in prange(lane_blocks(batch)):
        _walk(
            projected, weight_hh, initial, lengths, state, gates, final, steps, hidden, batch, reverse,
            block * LANES,
        )  # fmt: skip


KERNEL = Kernel(
    name="lstm_forward",
    parameters=(
        array_in("projected", "real", "4 * steps * hidden * batch"),
        array_in("weight_hh", "real", "4 * hidden * hidden"),
        array_in("initial", "real", "2 * hidden * batch"),
        array_in("lengths", "int64", "batch"),
        array_out("state", "real", "2 * steps * hidden * batch"),
        array_out("gates", "real", "4 * steps * hidden * batch"),
        array_out("final", "real", "2 * hidden * batch"),
        scalar("steps"),
        scalar("hidden"),
        scalar("batch"),
        scalar("reverse", "flag"),
    ),
    launch=lambda s: block_per(s["batch"], 4 * s["hidden"], padded(s["hidden"]) + 5 * s["hidden"]),
    twin=lstm_forward,
)

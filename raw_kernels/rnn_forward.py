"""One direction of a tanh or ReLU recurrent layer: all states."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.activations import tanh
from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, scalar
from bppsa_cupy.raw_kernels.lanes import LANES, lane_blocks, multiply_lanes
from bppsa_cupy.raw_kernels.recurrent import block_per, padded
from bppsa_cupy.raw_kernels.twin import twin


@twin()
def _walk(projected, weight_hh, initial, lengths, state, final, steps, hidden, batch, relu, reverse, first):
    count = np.uint64(min(LANES, batch - first))
    H, B, start = np.uint64(hidden), np.uint64(batch), np.uint64(first)
    least = lengths[first : first + LANES].min()
    sums = np.empty(hidden * LANES, projected.dtype)
    zero = projected.dtype.type(0)
    now = initial
    source = start
    for s in range(steps):
        t = steps - 1 - s if reverse else s
        target = np.uint64(t) * H * B + start
        multiply_lanes(weight_hh, 0, hidden, 1, hidden, hidden, now, source, batch, count, sums, 0)
        for j in range(H):
            o, i = target + j * B, j * np.uint64(LANES)
            if relu:
                for lane in range(count):
                    value = projected[o + lane] + sums[i + lane]
                    state[o + lane] = zero if value <= zero else value
            else:
                for lane in range(count):
                    state[o + lane] = tanh(projected[o + lane] + sums[i + lane])
            if t >= least:
                for lane in range(count):
                    if t >= lengths[start + lane]:
                        state[o + lane] = now[source + j * B + lane]
        now = state
        source = target
    for j in range(H):
        for lane in range(count):
            final[start + j * B + lane] = now[source + j * B + lane]


@twin(parallel=True)
def rnn_forward(projected, weight_hh, initial, lengths, state, final, steps, hidden, batch, relu, reverse):
    for block in prange(lane_blocks(batch)):
        _walk(
            projected, weight_hh, initial, lengths, state, final, steps, hidden, batch, relu, reverse,
            block * LANES,
        )  # fmt: skip


KERNEL = Kernel(
    name="rnn_forward",
    parameters=(
        array_in("projected", "real", "steps * hidden * batch"),
        array_in("weight_hh", "real", "hidden * hidden"),
        array_in("initial", "real", "hidden * batch"),
        array_in("lengths", "int64", "batch"),
        array_out("state", "real", "steps * hidden * batch"),
        array_out("final", "real", "hidden * batch"),
        scalar("steps"),
        scalar("hidden"),
        scalar("batch"),
        scalar("relu", "flag"),
        scalar("reverse", "flag"),
    ),
    launch=lambda s: block_per(s["batch"], s["hidden"], 2 * padded(s["hidden"])),
    twin=rnn_forward,
)

"""Back through each chunk of one direction of a tanh or ReLU recurrent layer."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, scalar
from bppsa_cupy.raw_kernels.lanes import LANES, lane_blocks, multiply_lanes
from bppsa_cupy.raw_kernels.recurrent import CHUNKS, block_per, padded
from bppsa_cupy.raw_kernels.twin import twin


@twin()
def _walk(
    state, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden, batch, chunk, per_step,
    relu, reverse, piece, first,
):  # fmt: skip
    count = np.uint64(min(LANES, batch - first))
    H, B, start = np.uint64(hidden), np.uint64(batch), np.uint64(first)
    zero, one = state.dtype.type(0), state.dtype.type(1)
    carried, sums = np.empty(hidden * LANES, state.dtype), np.empty(hidden * LANES, state.dtype)
    place = np.uint64(piece) * H * B + start
    for j in range(H):
        for lane in range(count):
            carried[j * np.uint64(LANES) + lane] = boundary[place + j * B + lane]
    begin, end = piece * chunk, min(piece * chunk + chunk, steps)
    for back in range(end - begin):
        s = end - 1 - back
        t = steps - 1 - s if reverse else s
        origin = np.uint64(t) * H * B + start
        for j in range(H):
            o, c = origin + j * B, j * np.uint64(LANES)
            for lane in range(count):
                h, g = state[o + lane], carried[c + lane]
                if per_step:
                    g += gradient[o + lane]
                value = (g if h > zero else zero) if relu else g * (one - h * h)
                delta[o + lane] = value if t < lengths[start + lane] else zero
        multiply_lanes(weight_hh, 0, 1, hidden, hidden, hidden, delta, origin, batch, count, sums, 0)
        for j in range(H):
            c = j * np.uint64(LANES)
            for lane in range(count):
                if t < lengths[start + lane]:
                    carried[c + lane] = sums[c + lane]
    for j in range(H):
        for lane in range(count):
            entering[place + j * B + lane] = carried[j * np.uint64(LANES) + lane]


@twin(parallel=True)
def rnn_backward(
    state, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden, batch, chunk, per_step,
    relu, reverse,
):  # fmt: skip
    blocks = lane_blocks(batch)
    for item in prange((steps + chunk - 1) // chunk * blocks):
        _walk(
            state, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden, batch, chunk,
            per_step, relu, reverse, item // blocks, item % blocks * LANES,
        )  # fmt: skip


KERNEL = Kernel(
    name="rnn_backward",
    parameters=(
        array_in("state", "real", "steps * hidden * batch"),
        array_in("weight_hh", "real", "hidden * hidden"),
        array_in("gradient", "real", "steps * hidden * batch if per_step else 0"),
        array_in("boundary", "real", f"{CHUNKS} * hidden * batch"),
        array_in("lengths", "int64", "batch"),
        array_out("delta", "real", "steps * hidden * batch"),
        array_out("entering", "real", f"{CHUNKS} * hidden * batch"),
        scalar("steps"),
        scalar("hidden"),
        scalar("batch"),
        scalar("chunk"),
        scalar("per_step", "flag"),
        scalar("relu", "flag"),
        scalar("reverse", "flag"),
    ),
    launch=lambda s: block_per(
        -(-s["steps"] // s["chunk"]) * s["batch"], s["hidden"], 2 * padded(s["hidden"])
    ),
    twin=rnn_backward,
)

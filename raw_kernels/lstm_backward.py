"""Back through each chunk of one direction of an LSTM layer."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.activations import tanh
from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, scalar
from bppsa_cupy.raw_kernels.lanes import LANES, lane_blocks, multiply_lanes
from bppsa_cupy.raw_kernels.recurrent import CHUNKS, block_per, padded
from bppsa_cupy.raw_kernels.twin import twin


@twin()
def _walk(
    state, gates, initial, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden, batch,
    chunk, per_step, reverse, piece, first,
):  # fmt: skip
    count = np.uint64(min(LANES, batch - first))
    H, B, start = np.uint64(hidden), np.uint64(batch), np.uint64(first)
    plane = H * B
    least = lengths[first : first + LANES].min()
    zero, one = state.dtype.type(0), state.dtype.type(1)
    carried = np.empty(2 * hidden * LANES, state.dtype)
    sums = np.empty(hidden * LANES, state.dtype)
    place = np.uint64(2 * piece) * plane + start
    for j in range(np.uint64(2) * H):
        for lane in range(count):
            carried[j * np.uint64(LANES) + lane] = boundary[place + j * B + lane]
    begin, end = piece * chunk, min(piece * chunk + chunk, steps)
    for back in range(end - begin):
        s = end - 1 - back
        t = steps - 1 - s if reverse else s
        before, source = initial, start + plane
        if s > 0:
            before, source = state, np.uint64(2 * (t + 1 if reverse else t - 1) + 1) * plane + start
        origin = np.uint64(4 * t) * plane + start
        for j in range(H):
            of_i = origin + j * B
            of_f, of_g, of_o = of_i + plane, of_i + plane + plane, of_i + np.uint64(3) * plane
            by_h, by_c = j * np.uint64(LANES), (H + j) * np.uint64(LANES)
            now, c = np.uint64(2 * t + 1) * plane + start + j * B, source + j * B
            if per_step:
                o = np.uint64(t) * plane + start + j * B
                for lane in range(count):
                    if t < lengths[start + lane]:
                        carried[by_h + lane] += gradient[o + lane]
            for lane in range(count):
                i, f, g, out = gates[of_i + lane], gates[of_f + lane], gates[of_g + lane], gates[of_o + lane]
                y, dh = tanh(state[now + lane]), carried[by_h + lane]
                dc = carried[by_c + lane] + dh * out * (one - y * y)
                delta[of_i + lane] = dc * g * i * (one - i)
                delta[of_f + lane] = dc * before[c + lane] * f * (one - f)
                delta[of_g + lane] = dc * i * (one - g * g)
                delta[of_o + lane] = dh * y * out * (one - out)
                carried[by_c + lane] = dc * f if t < lengths[start + lane] else carried[by_c + lane]
            if t >= least:
                for lane in range(count):
                    if t >= lengths[start + lane]:
                        delta[of_i + lane] = zero
                        delta[of_f + lane] = zero
                        delta[of_g + lane] = zero
                        delta[of_o + lane] = zero
        multiply_lanes(weight_hh, 0, 1, hidden, hidden, 4 * hidden, delta, origin, batch, count, sums, 0)
        for j in range(H):
            for lane in range(count):
                if t < lengths[start + lane]:
                    carried[j * np.uint64(LANES) + lane] = sums[j * np.uint64(LANES) + lane]
    for j in range(np.uint64(2) * H):
        for lane in range(count):
            entering[place + j * B + lane] = carried[j * np.uint64(LANES) + lane]


@twin(parallel=True)
def lstm_backward(
    state, gates, initial, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden, batch,
    chunk, per_step, reverse,
):  # fmt: skip
    blocks = lane_blocks(batch)
    for item in prange((steps + chunk - 1) // chunk * blocks):
        _walk(
            state, gates, initial, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden,
            batch, chunk, per_step, reverse, item // blocks, item % blocks * LANES,
        )  # fmt: skip


KERNEL = Kernel(
    name="lstm_backward",
    parameters=(
        array_in("state", "real", "2 * steps * hidden * batch"),
        array_in("gates", "real", "4 * steps * hidden * batch"),
        array_in("initial", "real", "2 * hidden * batch"),
        array_in("weight_hh", "real", "4 * hidden * hidden"),
        array_in("gradient", "real", "steps * hidden * batch if per_step else 0"),
        array_in("boundary", "real", f"2 * {CHUNKS} * hidden * batch"),
        array_in("lengths", "int64", "batch"),
        array_out("delta", "real", "4 * steps * hidden * batch"),
        array_out("entering", "real", f"2 * {CHUNKS} * hidden * batch"),
        scalar("steps"),
        scalar("hidden"),
        scalar("batch"),
        scalar("chunk"),
        scalar("per_step", "flag"),
        scalar("reverse", "flag"),
    ),
    launch=lambda s: block_per(
        -(-s["steps"] // s["chunk"]) * s["batch"], 4 * s["hidden"], 6 * s["hidden"] + 4 * padded(s["hidden"])
    ),
    twin=lstm_backward,
)

"""Back through each chunk of one direction of a GRU layer."""

import numpy as np
from numba import prange

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
    carried = np.empty(hidden * LANES, state.dtype)
    from_rz, from_m = np.empty(hidden * LANES, state.dtype), np.empty(hidden * LANES, state.dtype)
    place = np.uint64(piece) * plane + start
    for j in range(H):
        for lane in range(count):
            carried[j * np.uint64(LANES) + lane] = boundary[place + j * B + lane]
    begin, end = piece * chunk, min(piece * chunk + chunk, steps)
    for back in range(end - begin):
        s = end - 1 - back
        t = steps - 1 - s if reverse else s
        before, source = initial, start
        if s > 0:
            before, source = state, np.uint64(t + 1 if reverse else t - 1) * plane + start
        origin = np.uint64(4 * t) * plane + start
        for j in range(H):
            o, h, c = np.uint64(t) * plane + start + j * B, source + j * B, j * np.uint64(LANES)
            of_r = origin + j * B
            of_z, of_n, of_m = of_r + plane, of_r + plane + plane, of_r + np.uint64(3) * plane
            if per_step:
                for lane in range(count):
                    if t < lengths[start + lane]:
                        carried[c + lane] += gradient[o + lane]
            for lane in range(count):
                r, z, n, g = gates[of_r + lane], gates[of_z + lane], gates[of_n + lane], carried[c + lane]
                dn = g * (one - z) * (one - n * n)
                delta[of_r + lane] = dn * gates[of_m + lane] * r * (one - r)
                delta[of_z + lane] = g * (before[h + lane] - n) * z * (one - z)
                delta[of_n + lane] = dn
                delta[of_m + lane] = dn * r
            if t >= least:
                for lane in range(count):
                    if t >= lengths[start + lane]:
                        delta[of_r + lane] = zero
                        delta[of_z + lane] = zero
                        delta[of_n + lane] = zero
                        delta[of_m + lane] = zero
        multiply_lanes(weight_hh, 0, 1, hidden, hidden, 2 * hidden, delta, origin, batch, count, from_rz, 0)
        multiply_lanes(
            weight_hh, 2 * hidden * hidden, 1, hidden, hidden, hidden, delta, origin + np.uint64(3) * plane,
            batch, count, from_m, 0,
        )  # fmt: skip
        for j in range(H):
            c, of_z = j * np.uint64(LANES), origin + plane + j * B
            for lane in range(count):
                i = c + lane
                handed = gates[of_z + lane] if t < lengths[start + lane] else one
                carried[i] = handed * carried[i] + from_rz[i] + from_m[i]
    for j in range(H):
        for lane in range(count):
            entering[place + j * B + lane] = carried[j * np.uint64(LANES) + lane]


@twin(parallel=True)
def gru_backward(
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
    name="gru_backward",
    parameters=(
        array_in("state", "real", "steps * hidden * batch"),
        array_in("gates", "real", "4 * steps * hidden * batch"),
        array_in("initial", "real", "hidden * batch"),
        array_in("weight_hh", "real", "3 * hidden * hidden"),
        array_in("gradient", "real", "steps * hidden * batch if per_step else 0"),
        array_in("boundary", "real", f"{CHUNKS} * hidden * batch"),
        array_in("lengths", "int64", "batch"),
        array_out("delta", "real", "4 * steps * hidden * batch"),
        array_out("entering", "real", f"{CHUNKS} * hidden * batch"),
        scalar("steps"),
        scalar("hidden"),
        scalar("batch"),
        scalar("chunk"),
        scalar("per_step", "flag"),
        scalar("reverse", "flag"),
    ),
    launch=lambda s: block_per(
        -(-s["steps"] // s["chunk"]) * s["batch"], 3 * s["hidden"], 4 * s["hidden"] + 3 * padded(s["hidden"])
    ),
    twin=gru_backward,
)

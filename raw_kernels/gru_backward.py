"""Back through each chunk of one direction of a GRU layer."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.lane_blocks import ends_of_lanes, load_lanes, store_lanes
from bppsa_cupy.raw_kernels.twins.lane_products import multiply, pack
from bppsa_cupy.raw_kernels.twins.lanes import LANES, lanes_before, load, never_inlined, select, spread, store
from bppsa_cupy.raw_kernels.twins.recurrent import block_per, padded
from bppsa_cupy.system.compiled import compiled


@compiled()
def _walk(
    state, gates, initial, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden, batch,
    chunk, per_step, reverse, piece, first, count,
):  # fmt: skip
    never_inlined()
    H, B, L, start = np.uint64(hidden), np.uint64(batch), np.uint64(LANES), np.uint64(first)
    plane, block, two, three = H * B, H * L, np.uint64(2), np.uint64(3)
    zeros, one = spread(state.dtype.type(0)), state.dtype.type(1)
    ends, least = ends_of_lanes(lengths, first, count, steps)
    packed, none = pack(weight_hh, 0, 1, hidden, hidden, 3 * hidden), np.zeros(hidden, state.dtype)
    carried, sums = np.empty(hidden * LANES, state.dtype), np.empty(hidden * LANES, state.dtype)
    deltas = np.empty(3 * hidden * LANES, state.dtype)
    place = np.uint64(piece) * plane + start
    for j in range(H):
        store(carried, j * L, load_lanes(boundary, place + j * B, count))
    begin, end = piece * chunk, min(piece * chunk + chunk, steps)
    for back in range(end - begin):
        s = end - 1 - back
        t = steps - 1 - s if reverse else s
        before, source = initial, start
        if s > 0:
            before, source = state, np.uint64(t + 1 if reverse else t - 1) * plane + start
        o, q = np.uint64(t) * plane + start, np.uint64(4 * t) * plane + start
        for i in range(np.uint64(0), block, L):
            r, z = load_lanes(gates, q, count), load_lanes(gates, q + plane, count)
            n, m = load_lanes(gates, q + two * plane, count), load_lanes(gates, q + three * plane, count)
            carry = load(carried, i)
            g = carry
            if per_step:
                g = g + load_lanes(gradient, o, count)
            by_n = g * (one - z) * (one - n * n)
            by_m = by_n * r
            by_r = by_m * m * (one - r)
            by_z = g * (load_lanes(before, source, count) - n) * z * (one - z)
            handed = g * z
            if t >= least:
                inside = lanes_before(t, ends)
                by_r, by_z = select(inside, by_r, zeros), select(inside, by_z, zeros)
                by_n, by_m = select(inside, by_n, zeros), select(inside, by_m, zeros)
                handed = select(inside, handed, carry)
            store(carried, i, handed)
            store(deltas, i, by_r)
            store(deltas, i + block, by_z)
            store(deltas, i + two * block, by_m)
            store_lanes(delta, q, by_r, count)
            store_lanes(delta, q + plane, by_z, count)
            store_lanes(delta, q + two * plane, by_n, count)
            store_lanes(delta, q + three * plane, by_m, count)
            o += B
            q += B
            source += B
        multiply(packed, none, hidden, 3 * hidden, deltas, np.uint64(0), L, sums, np.uint64(0), L)
        for i in range(np.uint64(0), block, L):
            store(carried, i, load(carried, i) + load(sums, i))
    for j in range(H):
        store_lanes(entering, place + j * B, load(carried, j * L), count)


@compiled(parallel=True)
def gru_backward(
    state, gates, initial, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden, batch,
    chunk, per_step, reverse,
):  # fmt: skip
    full, chunks = batch // LANES, (steps + chunk - 1) // chunk
    if full * chunks == 1:
        _walk(
            state, gates, initial, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden,
            batch, chunk, per_step, reverse, 0, 0, None,
        )  # fmt: skip
    elif full:
        for item in prange(chunks * full):
            _walk(
                state, gates, initial, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden,
                batch, chunk, per_step, reverse, item // full, item % full * LANES, None,
            )  # fmt: skip
    if batch % LANES and chunks == 1:
        _walk(
            state, gates, initial, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden,
            batch, chunk, per_step, reverse, 0, full * LANES, np.uint64(batch % LANES),
        )  # fmt: skip
    elif batch % LANES:
        for piece in prange(chunks):
            _walk(
                state, gates, initial, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden,
                batch, chunk, per_step, reverse, piece, full * LANES, np.uint64(batch % LANES),
            )  # fmt: skip


KERNEL = kernel(
    gru_backward,
    lambda s: block_per(
        -(-s["steps"] // s["chunk"]) * s["batch"],
        3 * s["hidden"],
        4 * s["hidden"] + 3 * padded(s["hidden"]),
        s["itemsize"],
    ),
)

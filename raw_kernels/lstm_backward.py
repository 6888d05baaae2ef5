"""Back through each chunk of one direction of an LSTM layer."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.activations import tanh
from bppsa_cupy.raw_kernels.twins.lane_blocks import ends_of_lanes, load_lanes, store_lanes
from bppsa_cupy.raw_kernels.twins.lane_products import multiply, pack
from bppsa_cupy.raw_kernels.twins.lanes import (
    LANES,
    lanes_before,
    load,
    multiply_add,
    never_inlined,
    select,
    spread,
    store,
)
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
    packed, none = pack(weight_hh, 0, 1, hidden, hidden, 4 * hidden), np.zeros(hidden, state.dtype)
    by_h, by_c = np.empty(hidden * LANES, state.dtype), np.empty(hidden * LANES, state.dtype)
    sums, deltas = np.empty(hidden * LANES, state.dtype), np.empty(4 * hidden * LANES, state.dtype)
    place = np.uint64(2 * piece) * plane + start
    for j in range(H):
        store(by_h, j * L, load_lanes(boundary, place + j * B, count))
        store(by_c, j * L, load_lanes(boundary, place + plane + j * B, count))
    begin, end = piece * chunk, min(piece * chunk + chunk, steps)
    for back in range(end - begin):
        s = end - 1 - back
        t = steps - 1 - s if reverse else s
        before, source = initial, start + plane
        if s > 0:
            before, source = state, np.uint64(2 * (t + 1 if reverse else t - 1) + 1) * plane + start
        o, q, now = (
            np.uint64(t) * plane + start,
            np.uint64(4 * t) * plane + start,
            np.uint64(2 * t + 1) * plane + start,
        )
        for k in range(np.uint64(0), block, L):
            i, f = load_lanes(gates, q, count), load_lanes(gates, q + plane, count)
            g, out = load_lanes(gates, q + two * plane, count), load_lanes(gates, q + three * plane, count)
            y, dh, carry = tanh(load_lanes(state, now, count)), load(by_h, k), load(by_c, k)
            if per_step:
                dh = dh + load_lanes(gradient, o, count)
            dc = multiply_add(dh * out, one - y * y, carry)
            by_i, by_f = dc * g * i * (one - i), dc * load_lanes(before, source, count) * f * (one - f)
            by_g, by_o = dc * i * (one - g * g), dh * y * out * (one - out)
            handed = dc * f
            if t >= least:
                inside = lanes_before(t, ends)
                by_i, by_f = select(inside, by_i, zeros), select(inside, by_f, zeros)
                by_g, by_o = select(inside, by_g, zeros), select(inside, by_o, zeros)
                handed = select(inside, handed, carry)
            store(by_c, k, handed)
            store(deltas, k, by_i)
            store(deltas, k + block, by_f)
            store(deltas, k + two * block, by_g)
            store(deltas, k + three * block, by_o)
            store_lanes(delta, q, by_i, count)
            store_lanes(delta, q + plane, by_f, count)
            store_lanes(delta, q + two * plane, by_g, count)
            store_lanes(delta, q + three * plane, by_o, count)
            o += B
            q += B
            now += B
            source += B
        multiply(packed, none, hidden, 4 * hidden, deltas, np.uint64(0), L, sums, np.uint64(0), L)
        if t < least:
            by_h, sums = sums, by_h
        else:
            inside = lanes_before(t, ends)
            for k in range(np.uint64(0), block, L):
                store(by_h, k, select(inside, load(sums, k), load(by_h, k)))
    for j in range(H):
        store_lanes(entering, place + j * B, load(by_h, j * L), count)
        store_lanes(entering, place + plane + j * B, load(by_c, j * L), count)


@compiled(parallel=True)
def lstm_backward(
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
    lstm_backward,
    lambda s: block_per(
        -(-s["steps"] // s["chunk"]) * s["batch"],
        4 * s["hidden"],
        6 * s["hidden"] + 4 * padded(s["hidden"]),
        s["itemsize"],
    ),
)

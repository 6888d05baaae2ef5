"""Back through each chunk of one direction of a tanh or ReLU recurrent layer."""

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
    state, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden, batch, chunk, per_step,
    relu, reverse, piece, first, count,
):  # fmt: skip
    never_inlined()
    H, B, L, start = np.uint64(hidden), np.uint64(batch), np.uint64(LANES), np.uint64(first)
    zeros, one = spread(state.dtype.type(0)), state.dtype.type(1)
    ends, least = ends_of_lanes(lengths, first, count, steps)
    packed, none = pack(weight_hh, 0, 1, hidden, hidden, hidden), np.zeros(hidden, state.dtype)
    carried, deltas = np.empty(hidden * LANES, state.dtype), np.empty(hidden * LANES, state.dtype)
    sums = np.empty(hidden * LANES, state.dtype)
    place = np.uint64(piece) * H * B + start
    for j in range(H):
        store(carried, j * L, load_lanes(boundary, place + j * B, count))
    begin, end = piece * chunk, min(piece * chunk + chunk, steps)
    for back in range(end - begin):
        s = end - 1 - back
        t = steps - 1 - s if reverse else s
        o = np.uint64(t) * H * B + start
        for i in range(np.uint64(0), H * L, L):
            h, g = load_lanes(state, o, count), load(carried, i)
            if per_step:
                g = g + load_lanes(gradient, o, count)
            d = select(h > zeros, g, zeros) if relu else g * (one - h * h)
            if t >= least:
                d = select(lanes_before(t, ends), d, zeros)
            store(deltas, i, d)
            store_lanes(delta, o, d, count)
            o += B
        multiply(packed, none, hidden, hidden, deltas, np.uint64(0), L, sums, np.uint64(0), L)
        if t < least:
            carried, sums = sums, carried
        else:
            inside = lanes_before(t, ends)
            for i in range(np.uint64(0), H * L, L):
                store(carried, i, select(inside, load(sums, i), load(carried, i)))
    for j in range(H):
        store_lanes(entering, place + j * B, load(carried, j * L), count)


@compiled(parallel=True)
def rnn_backward(
    state, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden, batch, chunk, per_step,
    relu, reverse,
):  # fmt: skip
    full, chunks = batch // LANES, (steps + chunk - 1) // chunk
    if full * chunks == 1:
        _walk(
            state, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden, batch, chunk,
            per_step, relu, reverse, 0, 0, None,
        )  # fmt: skip
    elif full:
        for item in prange(chunks * full):
            _walk(
                state, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden, batch, chunk,
                per_step, relu, reverse, item // full, item % full * LANES, None,
            )  # fmt: skip
    if batch % LANES and chunks == 1:
        _walk(
            state, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden, batch, chunk,
            per_step, relu, reverse, 0, full * LANES, np.uint64(batch % LANES),
        )  # fmt: skip
    elif batch % LANES:
        for piece in prange(chunks):
            _walk(
                state, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden, batch, chunk,
                per_step, relu, reverse, piece, full * LANES, np.uint64(batch % LANES),
            )  # fmt: skip


KERNEL = kernel(
    rnn_backward,
    lambda s: block_per(
        -(-s["steps"] // s["chunk"]) * s["batch"], s["hidden"], 2 * padded(s["hidden"]), s["itemsize"]
    ),
)

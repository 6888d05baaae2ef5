"""One direction of an LSTM layer: all states, and the gates its way back needs."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.activations import sigmoid, tanh
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
    projected, weight_hh, initial, lengths, state, gates, final, steps, hidden, batch, reverse, first, count
):
    never_inlined()
    H, B, L, start = np.uint64(hidden), np.uint64(batch), np.uint64(LANES), np.uint64(first)
    plane, block, two, three = H * B, H * L, np.uint64(2), np.uint64(3)
    zeros = spread(projected.dtype.type(0))
    ends, least = ends_of_lanes(lengths, first, count, steps)
    packed, none = pack(weight_hh, 0, hidden, 1, 4 * hidden, hidden), np.zeros(4 * hidden, projected.dtype)
    held, sums = np.empty(2 * hidden * LANES, projected.dtype), np.empty(4 * hidden * LANES, projected.dtype)
    for j in range(two * H):
        store(held, j * L, load_lanes(initial, start + j * B, count))
    for s in range(steps):
        t = steps - 1 - s if reverse else s
        multiply(packed, none, 4 * hidden, hidden, held, np.uint64(0), L, sums, np.uint64(0), L)
        o, q = np.uint64(2 * t) * plane + start, np.uint64(4 * t) * plane + start
        for k in range(np.uint64(0), block, L):
            i = sigmoid(load_lanes(projected, q, count) + load(sums, k))
            f = sigmoid(load_lanes(projected, q + plane, count) + load(sums, k + block))
            g = tanh(load_lanes(projected, q + two * plane, count) + load(sums, k + two * block))
            out = sigmoid(load_lanes(projected, q + three * plane, count) + load(sums, k + three * block))
            c = multiply_add(f, load(held, k + block), i * g)
            h = out * tanh(c)
            if t >= least:
                inside = lanes_before(t, ends)
                h, c = select(inside, h, load(held, k)), select(inside, c, load(held, k + block))
                i, f = select(inside, i, zeros), select(inside, f, zeros)
                g, out = select(inside, g, zeros), select(inside, out, zeros)
            store(held, k, h)
            store(held, k + block, c)
            store_lanes(state, o, h, count)
            store_lanes(state, o + plane, c, count)
            store_lanes(gates, q, i, count)
            store_lanes(gates, q + plane, f, count)
            store_lanes(gates, q + two * plane, g, count)
            store_lanes(gates, q + three * plane, out, count)
            o += B
            q += B
    for j in range(two * H):
        store_lanes(final, start + j * B, load(held, j * L), count)


@compiled(parallel=True)
def lstm_forward(projected, weight_hh, initial, lengths, state, gates, final, steps, hidden, batch, reverse):
    full = batch // LANES
    if full == 1:
        _walk(
            projected, weight_hh, initial, lengths, state, gates, final, steps, hidden, batch, reverse, 0,
            None,
        )  # fmt: skip
    elif full:
        for block in prange(full):
            _walk(
                projected, weight_hh, initial, lengths, state, gates, final, steps, hidden, batch, reverse,
                block * LANES, None,
            )  # fmt: skip
    if batch % LANES:
        _walk(
            projected, weight_hh, initial, lengths, state, gates, final, steps, hidden, batch, reverse,
            full * LANES, np.uint64(batch % LANES),
        )  # fmt: skip


KERNEL = kernel(
    lstm_forward,
    lambda s: block_per(s["batch"], 4 * s["hidden"], padded(s["hidden"]) + 5 * s["hidden"], s["itemsize"]),
)

"""One direction of a GRU layer: all states, and the gates its way back needs."""

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
    projected, weight_hh, bias_n, initial, lengths, state, gates, final, steps, hidden, batch, reverse,
    first, count,
):  # fmt: skip
    never_inlined()
    H, B, L, start = np.uint64(hidden), np.uint64(batch), np.uint64(LANES), np.uint64(first)
    plane, block, two, three = H * B, H * L, np.uint64(2), np.uint64(3)
    zeros = spread(projected.dtype.type(0))
    ends, least = ends_of_lanes(lengths, first, count, steps)
    packed = pack(weight_hh, 0, hidden, 1, 3 * hidden, hidden)
    bias = np.zeros(3 * hidden, projected.dtype)
    bias[2 * hidden :] = bias_n
    held, sums = np.empty(hidden * LANES, projected.dtype), np.empty(3 * hidden * LANES, projected.dtype)
    for j in range(H):
        store(held, j * L, load_lanes(initial, start + j * B, count))
    for s in range(steps):
        t = steps - 1 - s if reverse else s
        multiply(packed, bias, 3 * hidden, hidden, held, np.uint64(0), L, sums, np.uint64(0), L)
        o, p, q = (
            np.uint64(t) * plane + start,
            np.uint64(3 * t) * plane + start,
            np.uint64(4 * t) * plane + start,
        )
        for i in range(np.uint64(0), block, L):
            before = load(held, i)
            r = sigmoid(load_lanes(projected, p, count) + load(sums, i))
            z = sigmoid(load_lanes(projected, p + plane, count) + load(sums, i + block))
            m = load(sums, i + two * block)
            n = tanh(multiply_add(r, m, load_lanes(projected, p + two * plane, count)))
            h = multiply_add(z, before - n, n)
            if t >= least:
                inside = lanes_before(t, ends)
                h = select(inside, h, before)
                r, z, n, m = (
                    select(inside, r, zeros),
                    select(inside, z, zeros),
                    select(inside, n, zeros),
                    select(inside, m, zeros),
                )
            store(held, i, h)
            store_lanes(state, o, h, count)
            store_lanes(gates, q, r, count)
            store_lanes(gates, q + plane, z, count)
            store_lanes(gates, q + two * plane, n, count)
            store_lanes(gates, q + three * plane, m, count)
            o += B
            p += B
            q += B
    for j in range(H):
        store_lanes(final, start + j * B, load(held, j * L), count)


@compiled(parallel=True)
def gru_forward(
    projected, weight_hh, bias_n, initial, lengths, state, gates, final, steps, hidden, batch, reverse,
):  # fmt: skip
    full = batch // LANES
    if full == 1:
        _walk(
            projected, weight_hh, bias_n, initial, lengths, state, gates, final, steps, hidden, batch,
            reverse, 0, None,
        )  # fmt: skip
    elif full:
        for block in prange(full):
            _walk(
                projected, weight_hh, bias_n, initial, lengths, state, gates, final, steps, hidden, batch,
                reverse, block * LANES, None,
            )  # fmt: skip
    if batch % LANES:
        _walk(
            projected, weight_hh, bias_n, initial, lengths, state, gates, final, steps, hidden, batch,
            reverse, full * LANES, np.uint64(batch % LANES),
        )  # fmt: skip


KERNEL = kernel(
    gru_forward,
    lambda s: block_per(s["batch"], 3 * s["hidden"], padded(s["hidden"]) + 4 * s["hidden"], s["itemsize"]),
)

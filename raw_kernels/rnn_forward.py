"""One direction of a tanh or ReLU recurrent layer: all states."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.activations import tanh
from bppsa_cupy.raw_kernels.twins.lane_blocks import ends_of_lanes, load_lanes, store_lanes
from bppsa_cupy.raw_kernels.twins.lane_products import multiply, pack
from bppsa_cupy.raw_kernels.twins.lanes import LANES, lanes_before, load, never_inlined, select, spread, store
from bppsa_cupy.raw_kernels.twins.recurrent import block_per, padded
from bppsa_cupy.system.compiled import compiled


@compiled()
def _walk(
    projected, weight_hh, initial, lengths, state, final, steps, hidden, batch, relu, reverse, first, count
):
    never_inlined()
    H, B, L, start = np.uint64(hidden), np.uint64(batch), np.uint64(LANES), np.uint64(first)
    zeros = spread(projected.dtype.type(0))
    ends, least = ends_of_lanes(lengths, first, count, steps)
    packed, none = pack(weight_hh, 0, hidden, 1, hidden, hidden), np.zeros(hidden, projected.dtype)
    held, sums = np.empty(hidden * LANES, projected.dtype), np.empty(hidden * LANES, projected.dtype)
    for j in range(H):
        store(held, j * L, load_lanes(initial, start + j * B, count))
    for s in range(steps):
        t = steps - 1 - s if reverse else s
        multiply(packed, none, hidden, hidden, held, np.uint64(0), L, sums, np.uint64(0), L)
        o = np.uint64(t) * H * B + start
        for i in range(np.uint64(0), H * L, L):
            x = load_lanes(projected, o, count) + load(sums, i)
            h = select(x <= zeros, zeros, x) if relu else tanh(x)
            if t >= least:
                h = select(lanes_before(t, ends), h, load(held, i))
            store(held, i, h)
            store_lanes(state, o, h, count)
            o += B
    for j in range(H):
        store_lanes(final, start + j * B, load(held, j * L), count)


@compiled(parallel=True)
def rnn_forward(projected, weight_hh, initial, lengths, state, final, steps, hidden, batch, relu, reverse):
    full = batch // LANES
    if full == 1:
        _walk(
            projected, weight_hh, initial, lengths, state, final, steps, hidden, batch, relu, reverse, 0,
            None,
        )  # fmt: skip
    elif full:
        for block in prange(full):
            _walk(
                projected, weight_hh, initial, lengths, state, final, steps, hidden, batch, relu, reverse,
                block * LANES, None,
            )  # fmt: skip
    if batch % LANES:
        _walk(
            projected, weight_hh, initial, lengths, state, final, steps, hidden, batch, relu, reverse,
            full * LANES, np.uint64(batch % LANES),
        )  # fmt: skip


KERNEL = kernel(
    rnn_forward, lambda s: block_per(s["batch"], s["hidden"], 2 * padded(s["hidden"]), s["itemsize"])
)

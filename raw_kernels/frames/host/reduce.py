"""The twin of a cell's NAME_reduce: products of the transposed Jacobians of each chunk.

Samples are lanes. But for W_hh a step's Jacobian is diagonal, so the columns are scaled by each sample's own
numbers, gate by gate, and then one product with W_hh's transposed serves all samples and columns.
"""

import numpy as np

from bppsa_cupy.raw_kernels.twins.products.lane_products import multiply_blocks
from bppsa_cupy.raw_kernels.twins.products.packing import pack
from bppsa_cupy.raw_kernels.twins.scans.batched import load_some
from bppsa_cupy.raw_kernels.twins.scans.reduce import (
    AT_ONCE,
    RENORMALISED,
    groups_of,
    identity,
    renormalise,
    store_map,
    store_offsets,
)
from bppsa_cupy.raw_kernels.twins.simd.lanes import (
    LANES,
    lanes_before,
    load,
    multiply_add,
    select,
    spread,
    store,
)
from bppsa_cupy.raw_kernels.twins.simd.rows import ALL, dot, load_rows, spread_rows, store_rows
from bppsa_cupy.raw_kernels.twins.threads.crew import tasks_of
from bppsa_cupy.system.compiled import compiled


def make_reduce(form):
    """The products of all chunks and groups of samples, one a group's maps."""
    gate_rows, states, saved, numbers = form.sums, form.states, form.saved, form.parameters
    coefficients, enter = form.functions.coefficients, form.functions.enter
    entry, carry = form.functions.entry, form.functions.carry
    reads_after, reads_before = form.after_bits, form.before_bits
    pairs = np.array(form.diagonal, np.int64).reshape(-1, 2)
    most_of = max(states, gate_rows)
    formers, laters = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])

    @compiled()
    def reduce_item(
        item, gates, state, initial, packed, unit, gradient, lengths, maps, exponents, offsets, steps, hidden,
        batch, chunk, first, per_step, reverse,
    ):  # fmt: skip
        groups, size = groups_of(batch), states * hidden
        piece, b = item // groups, item % groups * LANES
        plane, samples = hidden * batch, min(LANES, batch - b)
        begin, end = (piece + first) * chunk, min((piece + first) * chunk + chunk, steps)
        ends = np.zeros(LANES, np.int64)
        ends[:samples] = lengths[b : b + samples]
        least, most = ends[:samples].min(), ends.max()
        H, L, S, G = np.uint64(hidden), np.uint64(LANES), np.uint64(states), np.uint64(gate_rows)
        count, width, row = np.uint64(samples), size + (1 if per_step else 0), np.uint64(plane)
        alone, pitch, zero = np.uint64(1), S * H * L, spread(state.dtype.type(0))
        columns, product = identity(state, size, width), np.zeros(size * width * LANES, state.dtype)
        scaled, none = (
            np.empty(AT_ONCE * gate_rows * hidden * LANES, state.dtype),
            np.zeros(hidden, state.dtype),
        )
        factors = np.empty(hidden * gate_rows * states * LANES, state.dtype)
        direct = np.empty(hidden * states * states * LANES, state.dtype)
        powers, ones = np.zeros(size * LANES, np.int32), np.eye(most_of, dtype=state.dtype).reshape(-1)
        for back in range(end - begin):
            s = end - 1 - back
            t = steps - 1 - s if reverse else s
            if t < most:
                inside = lanes_before(t, ends)
                former, source = state, np.uint64((t + 1 if reverse else t - 1) * states) * row
                if s == 0:
                    former, source = initial, np.uint64(0)
                for k in range(H):
                    o = k * np.uint64(batch) + np.uint64(b)
                    if per_step:
                        target = np.uint64(size) * pitch + k * L
                        entering = load_some(gradient, np.uint64(t) * row + o, count)
                        store(columns, target, load(columns, target) + select(inside, entering, zero))
                    a = coefficients(
                        load_rows(gates, np.uint64(t * saved) * row + o, row, saved, ALL, count),
                        load_rows(state, np.uint64(t * states) * row + o, row, states, reads_after, count),
                        load_rows(former, source + o, row, states, reads_before, count),
                        spread_rows(unit, k, H, numbers),
                    )
                    for i in range(S):
                        x = enter(a, spread_rows(ones, i * np.uint64(most_of), alone, states))
                        for g in range(G):
                            w = spread_rows(ones, g * np.uint64(most_of), alone, gate_rows)
                            store(factors, ((i * G + g) * H + k) * L, dot(entry(a, w), x))
                        store_rows(direct, (i * S * H + k) * L, H * L, carry(a, x), None)
                for c in range(0, width, AT_ONCE):
                    together = min(AT_ONCE, width - c)
                    for column in range(np.uint64(together)):
                        taken, into = (np.uint64(c) + column) * pitch, column * G * H * L
                        for place_of in range(G * H):
                            f, k = place_of * L, place_of % H * L
                            value = load(factors, f) * load(columns, taken + k)
                            for i in range(alone, S):
                                factor = load(factors, i * G * H * L + f)
                                value = multiply_add(factor, load(columns, taken + i * H * L + k), value)
                            store(scaled, into + f, value)
                    multiply_blocks(
                        packed, none, hidden, gate_rows * hidden, scaled, np.uint64(0), L, G * H * L, product,
                        np.uint64(c) * pitch, L, pitch, np.uint64(together),
                    )  # fmt: skip
                    for column in range(np.uint64(c), np.uint64(c + together)):
                        at = column * pitch
                        product[np.int64(at + H * L) : np.int64(at + pitch)] = 0
                        for pair in range(formers.size):
                            j, i = np.uint64(formers[pair]), np.uint64(laters[pair])
                            for k in range(H):
                                into, taken = at + (j * H + k) * L, at + (i * H + k) * L
                                factor = load(direct, ((i * S + j) * H + k) * L)
                                added = multiply_add(factor, load(columns, taken), load(product, into))
                                store(product, into, added)
                if t < least:
                    columns, product = product, columns
                else:
                    for place_of in range(np.uint64(size * width)):
                        chosen = select(inside, load(product, place_of * L), load(columns, place_of * L))
                        store(columns, place_of * L, chosen)
            if (back + 1) % RENORMALISED == 0 or s == begin:
                renormalise(columns, powers, size, ends, steps - end if reverse else s)
        for lane in range(samples):
            store_map(columns, powers, lane, size, maps, exponents, piece * batch + b + lane)
            if per_step:
                store_offsets(columns, lane, size, offsets, piece * states * plane + b + lane, batch)

    reduce_items = tasks_of(reduce_item)

    @compiled()
    def reduce(
        gates, state, initial, weight_hh, unit, gradient, lengths, maps, exponents, offsets, steps, hidden,
        batch, chunk, first, per_step, reverse,
    ):  # fmt: skip
        packed = pack(weight_hh, 0, 1, hidden, hidden, gate_rows * hidden)
        items = ((steps + chunk - 1) // chunk - first) * groups_of(batch)
        reduce_items(
            items, items > 1,
            (
                gates, state, initial, packed, unit, gradient, lengths, maps, exponents, offsets, steps,
                hidden, batch, chunk, first, per_step, reverse,
            ),
        )  # fmt: skip

    return reduce

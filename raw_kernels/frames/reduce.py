"""The twin of a cell's NAME_reduce: products of the transposed Jacobians of each chunk.

The transposed Jacobian of a step is formed in a scratch matrix, and the columns are multiplied by it.
"""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.twins.reduce import (
    RENORMALISED,
    map_count,
    multiply,
    renormalise,
    span,
    store,
    store_offsets,
    take_in,
    unit_columns,
)
from bppsa_cupy.raw_kernels.twins.rows import ALL, dot, load_numbers
from bppsa_cupy.raw_kernels.twins.walks import start_of
from bppsa_cupy.system.compiled import compiled


def make_reduce(form):
    """The products of all chunks and samples, one a map."""
    gate_rows, states, kept, numbers = form.gates, form.states, form.kept, form.parameters
    coefficients, enter = form.functions.coefficients, form.functions.enter
    entry, carry = form.functions.entry, form.functions.carry
    reads_after, reads_before = form.after_bits, form.before_bits

    @compiled()
    def one(
        gates, state, initial, weight_hh, unit, gradient, lengths, maps, exponents, offsets, steps, hidden,
        sets, batch, walks, chunk, first, per_step, reverse, item,
    ):  # fmt: skip
        b, size = item % walks, states * hidden
        piece, plane = item // walks, hidden * walks
        number, place = b // batch, start_of(b, hidden, batch)
        begin, end = span(piece + first, steps, chunk, lengths[b % batch], reverse)
        columns, product = unit_columns(state, size), np.empty((size, size + 1), state.dtype)
        jacobian, powers = np.zeros((size, size), state.dtype), np.zeros(size, np.int32)
        eye = np.eye(states, dtype=state.dtype).reshape(-1)
        H, alone, row = np.uint64(hidden), np.uint64(1), np.uint64(plane)
        for back in range(end - begin):
            s = end - 1 - back
            t = steps - 1 - s if reverse else s
            if per_step:
                take_in(columns, gradient, t * plane + place, hidden, batch)
            former, source = state, np.uint64((t + 1 if reverse else t - 1) * states) * row
            if s == 0:
                former, source = initial, np.uint64(0)
            for k in range(hidden):
                o = np.uint64(k * batch + place)
                a = coefficients(
                    load_numbers(gates, np.uint64(t * kept) * row + o, row, kept, ALL),
                    load_numbers(state, np.uint64(t * states) * row + o, row, states, reads_after),
                    load_numbers(former, source + o, row, states, reads_before),
                    load_numbers(unit, np.uint64(number * numbers * hidden + k), H, numbers, ALL),
                )
                weights = np.uint64((number * gate_rows * hidden + k) * hidden)
                for i in range(states):
                    x = enter(a, load_numbers(eye, np.uint64(i * states), alone, states, ALL))
                    direct = carry(a, x)
                    for r in range(np.uint64(hidden)):
                        w = load_numbers(weight_hh, weights + r, H * H, gate_rows, ALL)
                        jacobian[r, i * hidden + k] = dot(entry(a, w), x)
                    jacobian[k, i * hidden + k] += direct[0]
                    for j in range(1, states):
                        jacobian[j * hidden + k, i * hidden + k] = direct[j]
            multiply(jacobian, columns, product)
            columns, product = product, columns
            if (back + 1) % RENORMALISED == 0 or s == begin:
                renormalise(columns, powers)
        store(columns, powers, maps, exponents, item)
        if per_step:
            store_offsets(columns, offsets, piece * states * plane, b, hidden, sets, batch)

    @compiled(parallel=True)
    def reduce(
        gates, state, initial, weight_hh, unit, gradient, lengths, maps, exponents, offsets, steps, hidden,
        sets, batch, walks, chunk, first, per_step, reverse,
    ):  # fmt: skip
        for item in prange(map_count(steps, walks, chunk, first)):
            one(
                gates, state, initial, weight_hh, unit, gradient, lengths, maps, exponents, offsets, steps,
                hidden, sets, batch, walks, chunk, first, per_step, reverse, np.int64(item),
            )  # fmt: skip

    return reduce

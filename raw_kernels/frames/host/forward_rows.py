"""Forward in time with units as lanes: a few samples, or one."""

import numpy as np

from bppsa_cupy.raw_kernels.frames.host.teams import share
from bppsa_cupy.raw_kernels.twins.products.packing import pack_rows
from bppsa_cupy.raw_kernels.twins.products.row_products import copy_vectors, multiply_rows, whole_vectors
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES
from bppsa_cupy.raw_kernels.twins.simd.prefetch import will_read, will_write
from bppsa_cupy.raw_kernels.twins.simd.rows import ALL, load_rows, store_rows
from bppsa_cupy.raw_kernels.twins.simd.strided import gather, scatter
from bppsa_cupy.system.compiled import compiled


def make_forward_rows(form):
    """The steps of a walk of a few samples."""
    gates, states, kept, numbers = form.gates, form.states, form.kept, form.parameters
    sums_of_step = form.sums
    cell = form.functions.forward

    @compiled()
    def steps_of(
        projected, packed, bias, unit, ends, state, values, held, taken, steps, hidden, sets, batch, reverse,
        first, count, begin, end, start, stop,
    ):  # fmt: skip
        plane, source = sets * hidden * batch, first + begin * batch
        length, width, whole = end - begin, whole_vectors(end - begin), whole_vectors(hidden)
        L, row, spacing = np.uint64(LANES), np.uint64(width), np.uint64(whole)
        own, sample = gates * width, np.uint64(states * whole)
        summed = sums_of_step * width
        # `taken`: inputs of every sample, then sums, then what is kept.
        sums, keeps = count * own, count * (own + summed)
        for s in range(start, stop):
            t = steps - 1 - s if reverse else s
            now = np.uint64(s & 1) * np.uint64(count) * sample
            later = np.uint64(count) * sample - now
            for c in range(count):
                # Other threads wrote what is read here, and have read what was where this one writes.
                will_read(held, np.int64(now) + c * states * whole, hidden, 1)
                will_write(held, np.int64(later) + c * states * whole + begin, length, 1)
                copy_vectors(bias, np.uint64(0), taken, np.uint64(sums + c * summed), summed)
            for gate in range(gates):
                will_read(projected, (t * gates + gate) * plane + source, length, batch)
            for part in range(states):
                will_write(state, (t * states + part) * plane + source, length, batch)
            for part in range(kept):
                will_write(values, (t * kept + part) * plane + source, length, batch)
            multiply_rows(
                packed, summed // LANES, 1, hidden, held, now, np.uint64(0), sample, taken, np.uint64(sums),
                np.uint64(summed), count, s & 1 == 1,
            )  # fmt: skip
            for gate in range(gates):
                place = (t * gates + gate) * plane + source
                gather(projected, place, batch, count, length, taken, gate * width, own)
            for c in range(count):
                x, u, v = (
                    np.uint64(c * own),
                    np.uint64(sums + c * summed),
                    np.uint64(keeps + c * kept * width),
                )
                place = np.uint64(c) * sample + np.uint64(begin)
                inside = t < ends[c]
                for j in range(np.uint64(0), row, L):
                    after, keep = (
                        load_rows(held, now + place + j, spacing, states, ALL, None),
                        load_rows(taken, x, row, kept, 0, None),
                    )
                    if inside:
                        after, keep = cell(
                            load_rows(taken, x + j, row, gates, ALL, None),
                            load_rows(taken, u + j, row, sums_of_step, ALL, None),
                            after,
                            load_rows(unit, np.uint64(begin) + j, spacing, numbers, ALL, None),
                        )
                    store_rows(held, later + place + j, spacing, after, None)
                    store_rows(taken, v + j, row, keep, None)
            for part in range(states):
                target, of = (t * states + part) * plane + source, np.int64(later) + part * whole + begin
                scatter(held, of, states * whole, count, length, state, target, batch)
            for part in range(kept):
                target = (t * kept + part) * plane + source
                scatter(taken, keeps + part * width, kept * width, count, length, values, target, batch)

    return steps_of


@compiled()
def pack_rows_part(gates, weight_hh, bias_hh, hidden, item, parts, packed, bias):
    """Set weights and biases of one part of one set, as the steps take them; zeros after its units."""
    number, (begin, end) = item // parts, share(hidden, parts, item % parts, LANES)
    square, width = hidden * hidden, whole_vectors(end - begin)
    pack_rows(weight_hh, number * gates * square, hidden, 1, gates, square, begin, end, hidden, packed)
    for gate in range(gates):
        source, target = (number * gates + gate) * hidden, gate * width
        for j in range(width):
            bias[target + j] = bias_hh[source + begin + j] if j < end - begin else bias.dtype.type(0)

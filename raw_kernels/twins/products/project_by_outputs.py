"""A matrix times one sample's values of all steps, whose vectors hold rows of the matrix."""

import numpy as np

from bppsa_cupy.raw_kernels.twins.products.panels import PANEL, aligned, places_of, rows_as_lanes
from bppsa_cupy.raw_kernels.twins.products.tiles import ROWS, add_products, lanes_of
from bppsa_cupy.raw_kernels.twins.simd.denormals import flush_denormals, restore_denormals
from bppsa_cupy.raw_kernels.twins.simd.lanes import never_inlined
from bppsa_cupy.raw_kernels.twins.simd.squares import copy_line
from bppsa_cupy.system.compiled import compiled

#: Rows of the matrix that are multiplied at once, by one panel of terms: their sums stay in the first cache.
#: By several panels where the matrix has more entries than so many and is too large for the second.
HEIGHT, PANELS, LARGE = 14 * ROWS, 4, 1 << 16


@compiled(forceinline=True)
def _copy_lines(source, place, apart, target, start, spacing, count, length, shift):
    """Copy `count` lines of `length` elements, plus `shift` by line; at most a vector's lanes."""
    L = np.uint64(lanes_of(source.itemsize))
    for line in range(np.uint64(count)):
        here, there, more = place + line * apart, start + line * spacing, shift[line]
        if length == L:
            copy_line(source, here, None, target, there, None, more)
        else:
            copy_line(source, here, length, target, there, length, more)


@compiled(forceinline=True)
def _back_of(length, lanes, there):
    """How far back a piece begins to fill a vector, of `there` elements that lie before it and were copied:
    part of a vector takes several times as long to store."""
    missing = np.uint64(lanes) - length
    return missing if there >= missing else np.uint64(0)


@compiled()
def project_by_terms(values, weight, bias, out, rows, inputs, outputs, batch, start, end):
    """out of the steps start ... end - 1; `weight` (outputs, inputs), otherwise as `sequence_project`."""
    never_inlined()
    former = flush_denormals()
    none = np.uint64(0)
    lanes, B, across = (
        lanes_of(values.itemsize),
        np.uint64(batch),
        np.uint64(PANEL * lanes_of(values.itemsize)),
    )
    most = PANEL * (PANELS if inputs * outputs > LARGE else 1)
    packed = aligned(most * lanes * inputs, values)
    packed[:] = 0
    sums = aligned(min(HEIGHT, (outputs + ROWS - 1) // ROWS * ROWS) * most * lanes, values)
    origins, steps = np.empty(outputs, np.uint64), np.empty(inputs, np.uint64)
    shifts, zeros = np.empty(inputs, np.uint64), np.zeros(inputs, values.dtype)
    places = places_of(most, inputs, lanes)
    for row in range(outputs):
        origins[row] = row * inputs
    for k in range(inputs):
        steps[k] = k
        shifts[k] = k * PANEL * lanes
    value_step, out_step = np.uint64(rows * batch), np.uint64(outputs * batch)
    for first in range(np.uint64(start) * B, np.uint64(end) * B, np.uint64(most * lanes)):
        count = min(np.uint64(most * lanes), np.uint64(end) * B - first)
        vectors = (np.int64(count) + lanes - 1) // lanes
        # Pieces of one step's samples and, in the panels, of one panel.
        t, b = first // B, first % B
        source, panel, beside, n = t * value_step, none, none, none
        while n < count:
            length = min(np.uint64(lanes), B - b, across - beside, count - n)
            back = _back_of(length, lanes, min(b, beside))
            _copy_lines(
                values, source + b - back, B, packed, panel + beside - back, across, inputs, length + back,
                zeros,
            )  # fmt: skip
            n, b, beside = n + length, b + length, beside + length
            if b == B:
                source, b = source + value_step, none
            if beside == across:
                panel, beside = panel + across * np.uint64(inputs), none
        for top in range(0, outputs, HEIGHT):
            here = min(HEIGHT, outputs - top)
            width = np.uint64(vectors * lanes)
            sums[: (here + ROWS - 1) // ROWS * ROWS * vectors * lanes] = 0
            add_products(
                weight, origins[top : top + here], steps, packed, places[:vectors], shifts, 0, inputs, sums
            )
            shift = bias[top : top + here]
            target, b, n = t * out_step + np.uint64(top) * B, first % B, none
            while n < count:
                length = min(np.uint64(lanes), B - b, count - n)
                back = _back_of(length, lanes, min(b, n))
                _copy_lines(sums, n - back, width, out, target + b - back, B, here, length + back, shift)
                n, b = n + length, b + length
                if b == B:
                    target, b = target + out_step, none
    restore_denormals(former)


#: Steps that are multiplied at once: their sums stay in the first cache.
HEIGHT = 11 * ROWS


@compiled()
def project_by_outputs(
    values, weight, bias, out, rows, inputs, outputs, transposed, start, end, first, count
):
    """`count` outputs from `first` on, of the steps start ... end - 1; otherwise as `sequence_project`."""
    never_inlined()
    former = flush_denormals()
    lanes = lanes_of(values.itemsize)
    vectors = (count + lanes - 1) // lanes
    width = vectors * lanes
    packed = aligned((vectors + PANEL - 1) // PANEL * PANEL * lanes * inputs, values)
    sums = aligned(HEIGHT * width, values)
    unused = np.empty(width, values.dtype)
    none = np.uint64(0)
    if transposed:
        step = np.uint64(outputs)
        rows_as_lanes(weight, np.uint64(first), step, inputs, count, 1, packed, inputs, PANEL, unused)
    elif inputs:
        place = np.uint64(first * inputs)
        rows_as_lanes(weight, place, none, 1, count, inputs, packed, inputs, PANEL, unused)
    origins, steps, shifts = (
        np.empty(HEIGHT, np.uint64),
        np.empty(inputs, np.uint64),
        np.empty(inputs, np.uint64),
    )
    places = places_of(vectors, inputs, lanes)
    for t in range(HEIGHT):
        origins[t] = t * rows
    for k in range(inputs):
        steps[k] = k
        shifts[k] = k * PANEL * lanes
    for top in range(start, end, HEIGHT):
        here = min(HEIGHT, end - top)
        sums[:] = 0
        add_products(values[top * rows :], origins[:here], steps, packed, places, shifts, 0, inputs, sums)
        for t in range(here):
            source, target = np.uint64(t * width), np.uint64((top + t) * outputs + first)
            for o in range(np.uint64(count)):
                out[target + o] = sums[source + o] + bias[np.uint64(first) + o]
    restore_denormals(former)

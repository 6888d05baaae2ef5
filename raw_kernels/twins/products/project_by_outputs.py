"""A matrix times one sample's values of all steps, whose vectors hold rows of the matrix."""

import numpy as np

from bppsa_cupy.raw_kernels.twins.products.panels import PANEL, aligned, places_of, rows_as_lanes
from bppsa_cupy.raw_kernels.twins.products.tiles import ROWS, add_products, lanes_of
from bppsa_cupy.raw_kernels.twins.simd.denormals import flush_denormals, restore_denormals
from bppsa_cupy.raw_kernels.twins.simd.lanes import never_inlined
from bppsa_cupy.system.compiled import compiled

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

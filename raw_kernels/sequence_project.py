"""One matrix times the values of every step and sample."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.batched import load_some, store_some
from bppsa_cupy.raw_kernels.twins.lane_products import multiply, pack
from bppsa_cupy.raw_kernels.twins.lanes import LANES, load, store
from bppsa_cupy.system.compiled import compiled

#: Multiply-adds that are worth a thread.
LEAST = 1 << 22


@compiled()
def _span(values, packed, bias, out, rows, inputs, outputs, batch, start, end):
    B, L, none = np.uint64(batch), np.uint64(LANES), np.uint64(0)
    count = B % L
    whole = B - count
    few, made = np.empty(inputs * LANES, values.dtype), np.empty(outputs * LANES, values.dtype)
    for t in range(np.uint64(start), np.uint64(end)):
        source, target = t * np.uint64(rows) * B, t * np.uint64(outputs) * B
        for first in range(none, whole, L):
            multiply(packed, bias, outputs, inputs, values, source + first, B, out, target + first, B)
        if count:
            for i in range(np.uint64(inputs)):
                store(few, i * L, load_some(values, source + whole + i * B, count))
            multiply(packed, bias, outputs, inputs, few, none, L, made, none, L)
            for i in range(np.uint64(outputs)):
                store_some(out, target + whole + i * B, count, load(made, i * L))


@compiled(parallel=True)
def sequence_project(values, weight, bias, out, steps, rows, inputs, outputs, batch, transposed, biased):
    shift = bias if biased else np.zeros(outputs, weight.dtype)
    by_output, by_input = (1, outputs) if transposed else (inputs, 1)
    packed = pack(weight, 0, by_output, by_input, outputs, inputs)
    lanes = (batch + LANES - 1) // LANES * LANES
    spans = max(1, min(64, steps * outputs * (inputs + 4) * lanes // LEAST))
    if spans == 1:
        _span(values, packed, shift, out, rows, inputs, outputs, batch, 0, steps)
    else:
        for span in prange(spans):
            start, end = steps * span // spans, steps * (span + 1) // spans
            _span(values, packed, shift, out, rows, inputs, outputs, batch, start, end)


KERNEL = kernel(sequence_project, "steps * outputs * batch")

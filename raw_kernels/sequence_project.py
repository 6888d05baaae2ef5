"""One matrix times the values of every step and sample."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.lane_blocks import padded_lanes, space_lanes, unpad_lanes
from bppsa_cupy.raw_kernels.lane_products import multiply, pack
from bppsa_cupy.raw_kernels.lanes import LANES
from bppsa_cupy.raw_kernels.twin import twin

#: Multiply-adds that are worth a thread.
LEAST = 1 << 22


@twin()
def _part(values, packed, bias, out, rows, inputs, outputs, batch, start, end):
    B, L = np.uint64(batch), np.uint64(LANES)
    for t in range(np.uint64(start), np.uint64(end)):
        source, target = t * np.uint64(rows) * B, t * np.uint64(outputs) * B
        for first in range(np.uint64(0), B - B % L, L):
            multiply(packed, bias, outputs, inputs, values, source + first, B, out, target + first, B)


@twin(parallel=True)
def sequence_project(values, weight, bias, out, steps, rows, inputs, outputs, batch, transposed, biased):
    shift = bias if biased else np.zeros(outputs, weight.dtype)
    by_output, by_input = (1, outputs) if transposed else (inputs, 1)
    packed = pack(weight, 0, by_output, by_input, outputs, inputs)
    parts = max(1, min(64, steps * outputs * (inputs + 4) * batch // LEAST))
    if parts == 1:
        _part(values, packed, shift, out, rows, inputs, outputs, batch, 0, steps)
    elif batch >= LANES:
        for part in prange(parts):
            _part(
                values, packed, shift, out, rows, inputs, outputs, batch, steps * part // parts, steps *
                (part + 1) // parts,
            )  # fmt: skip
    if batch % LANES:
        values_tail, out_tail = padded_lanes(values, batch), space_lanes(out, batch)
        _part(values_tail, packed, shift, out_tail, rows, inputs, outputs, LANES, 0, steps)
        unpad_lanes(out_tail, out, batch)


KERNEL = Kernel(
    name="sequence_project",
    parameters=(
        array_in("values", "real", "steps * rows * batch"),
        array_in("weight", "real", "outputs * inputs"),
        array_in("bias", "real", "outputs if biased else 0"),
        array_out("out", "real", "steps * outputs * batch"),
        scalar("steps"),
        scalar("rows"),
        scalar("inputs"),
        scalar("outputs"),
        scalar("batch"),
        scalar("transposed", "flag"),
        scalar("biased", "flag"),
    ),
    launch=lambda s: one_thread_per(s["steps"] * s["outputs"] * s["batch"]),
    twin=sequence_project,
)

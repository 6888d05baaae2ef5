"""One matrix times the values of every step and sample."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.lanes import LANES, multiply_lanes
from bppsa_cupy.raw_kernels.spans import part_count, part_start
from bppsa_cupy.raw_kernels.twin import twin


@twin()
def _part(values, weight, bias, out, rows, inputs, outputs, batch, transposed, biased, start, end):
    by_output, by_input = (1, outputs) if transposed else (inputs, 1)
    B, rows_out = np.uint64(batch), np.uint64(outputs)
    sums = np.empty(outputs * LANES, values.dtype)
    for t in range(start, end):
        for first in range(0, batch, LANES):
            count = np.uint64(min(LANES, batch - first))
            place = t * np.uint64(rows) * B + np.uint64(first)
            multiply_lanes(
                weight, 0, by_output, by_input, outputs, inputs, values, place, batch, count, sums, 0
            )
            for o in range(rows_out):
                target, source = (t * rows_out + o) * B + np.uint64(first), o * np.uint64(LANES)
                shift = bias[o] if biased else values.dtype.type(0)
                for lane in range(count):
                    out[target + lane] = sums[source + lane] + shift


@twin(parallel=True)
def sequence_project(values, weight, bias, out, steps, rows, inputs, outputs, batch, transposed, biased):
    parts = part_count(steps * outputs * batch)
    if parts == 1:
        _part(
            values, weight, bias, out, rows, inputs, outputs, batch, transposed, biased,
            part_start(0, 1, steps), part_start(1, 1, steps),
        )  # fmt: skip
    else:
        for part in prange(parts):
            start, end = part_start(part, parts, steps), part_start(part + 1, parts, steps)
            _part(values, weight, bias, out, rows, inputs, outputs, batch, transposed, biased, start, end)


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

"""Partial sums of a weight's and a bias's gradient over steps and samples."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, Kernel, LaunchShape, array_in, array_out, scalar
from bppsa_cupy.raw_kernels.twin import twin


@twin()
def _part(
    delta, values, initial, sums, steps, delta_rows, first, rows, value_rows, columns, batch, shifted,
    reverse, part, start, end,
):  # fmt: skip
    B, width = np.uint64(batch), np.uint64(columns + 1)
    origin = np.uint64(part * rows) * width
    for place in range(origin, origin + np.uint64(rows) * width):
        sums[place] = 0
    for t in range(start, end):
        before, source = values, t
        if shifted:
            source = t + 1 if reverse else t - 1
            if t == (steps - 1 if reverse else 0):
                before, source = initial, 0
        for j in range(np.uint64(rows)):
            d = (np.uint64(t * delta_rows + first) + j) * B
            place = origin + j * width
            for k in range(np.uint64(columns)):
                v = (np.uint64(source * value_rows) + k) * B
                for b in range(B):
                    sums[place + k] += delta[d + b] * before[v + b]
            for b in range(B):
                sums[place + np.uint64(columns)] += delta[d + b]


@twin(parallel=True)
def sequence_weight_gradient(
    delta, values, initial, sums, steps, delta_rows, first, rows, value_rows, columns, batch, parts, shifted,
    reverse,
):  # fmt: skip
    for part in prange(parts):
        _part(
            delta, values, initial, sums, steps, delta_rows, first, rows, value_rows, columns, batch,
            shifted, reverse, part, steps * part // parts, steps * (part + 1) // parts,
        )  # fmt: skip


def _launch(s):
    blocks = s["parts"] * -(-s["rows"] // 32) * -(-(s["columns"] + 1) // 32)
    return LaunchShape((min(blocks, MAXIMAL_GRID), 1, 1), (256, 1, 1))


KERNEL = Kernel(
    name="sequence_weight_gradient",
    parameters=(
        array_in("delta", "real", "steps * delta_rows * batch"),
        array_in("values", "real", "steps * value_rows * batch"),
        array_in("initial", "real", "columns * batch if shifted else 0"),
        array_out("sums", "real", "parts * rows * (columns + 1)"),
        scalar("steps"),
        scalar("delta_rows"),
        scalar("first"),
        scalar("rows"),
        scalar("value_rows"),
        scalar("columns"),
        scalar("batch"),
        scalar("parts"),
        scalar("shifted", "flag"),
        scalar("reverse", "flag"),
    ),
    launch=_launch,
    twin=sequence_weight_gradient,
)

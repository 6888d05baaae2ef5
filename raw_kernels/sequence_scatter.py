"""Sequences from the layout of the scans over time to a layer's."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.spans import part_count, part_start
from bppsa_cupy.system.compiled import compiled


@compiled()
def _part(inside, lengths, outside, steps, rows, features, batch, total, offset, start, end):
    B, F = np.uint64(batch), np.uint64(features)
    by_sample = np.uint64(steps * total)
    by_step = np.uint64(total)
    for t in range(start, end):
        source, target = t * np.uint64(rows) * B, t * by_step + np.uint64(offset)
        for b in range(B):
            if np.int64(t) < lengths[b]:
                place = source + b
                for f in range(F):
                    outside[target + f] = inside[place]
                    place += B
            else:
                for f in range(F):
                    outside[target + f] = 0
            target += by_sample


@compiled(parallel=True)
def sequence_scatter(inside, lengths, outside, steps, rows, features, batch, total, offset):
    parts = part_count(steps * features * batch)
    if parts == 1:
        _part(
            inside, lengths, outside, steps, rows, features, batch, total, offset,
            part_start(0, 1, steps), part_start(1, 1, steps),
        )  # fmt: skip
    else:
        for part in prange(parts):
            start, end = part_start(part, parts, steps), part_start(part + 1, parts, steps)
            _part(
                inside, lengths, outside, steps, rows, features, batch, total, offset, start,
                end,
            )  # fmt: skip


KERNEL = kernel(sequence_scatter, "steps * features * batch")

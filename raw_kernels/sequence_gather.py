"""Sequences from a layer's layout to that of the scans over time."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.spans import part_count, part_start
from bppsa_cupy.system.compiled import compiled


@compiled()
def _part(outside, lengths, inside, steps, features, batch, total, offset, start, end):
    B, F, one = np.uint64(batch), np.uint64(features), np.uint64(1)
    by_sample = np.uint64(steps * total)
    by_step = np.uint64(total)
    for t in range(start, end):
        source, target = t * by_step + np.uint64(offset), t * F * B
        for _ in range(F):
            place = source
            for b in range(B):
                inside[target + b] = outside[place]
                place += by_sample
            source += one
            target += B
    for b in range(B):
        for t in range(max(np.int64(start), lengths[b]), np.int64(end)):
            for f in range(F):
                inside[(np.uint64(t) * F + f) * B + b] = 0


@compiled(parallel=True)
def sequence_gather(outside, lengths, inside, steps, features, batch, total, offset):
    parts = part_count(steps * features * batch)
    if parts == 1:
        _part(
            outside, lengths, inside, steps, features, batch, total, offset,
            part_start(0, 1, steps), part_start(1, 1, steps),
        )  # fmt: skip
    else:
        for part in prange(parts):
            start, end = part_start(part, parts, steps), part_start(part + 1, parts, steps)
            _part(outside, lengths, inside, steps, features, batch, total, offset, start, end)


KERNEL = kernel(sequence_gather, "steps * features * batch")

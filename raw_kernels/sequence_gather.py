"""Sequences from a layer's layout to that of the scans over time."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.spans import span_count, span_start
from bppsa_cupy.system.compiled import compiled


@compiled()
def _span(outside, lengths, inside, steps, features, batch, total, offset, start, end):
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
    spans = span_count(steps * features * batch)
    if spans == 1:
        start, end = span_start(0, 1, steps), span_start(1, 1, steps)
        _span(outside, lengths, inside, steps, features, batch, total, offset, start, end)
    else:
        for span in prange(spans):
            start, end = span_start(span, spans, steps), span_start(span + 1, spans, steps)
            _span(outside, lengths, inside, steps, features, batch, total, offset, start, end)


KERNEL = kernel(sequence_gather, "steps * features * batch")

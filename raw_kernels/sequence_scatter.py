"""Sequences from the layout of the scans over time to a layer's."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.spans import span_count, span_start
from bppsa_cupy.system.compiled import compiled


@compiled()
def _span(inside, lengths, outside, steps, rows, features, batch, total, offset, start, end):
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
    spans = span_count(steps * features * batch)
    if spans == 1:
        start, end = span_start(0, 1, steps), span_start(1, 1, steps)
        _span(inside, lengths, outside, steps, rows, features, batch, total, offset, start, end)
    else:
        for span in prange(spans):
            start, end = span_start(span, spans, steps), span_start(span + 1, spans, steps)
            _span(inside, lengths, outside, steps, rows, features, batch, total, offset, start, end)


KERNEL = kernel(sequence_scatter, "steps * features * batch")

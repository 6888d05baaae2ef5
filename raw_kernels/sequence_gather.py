"""Sequences from a layer's layout to that of the scans over time."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled


@compiled()
def _span(start, end, outside, lengths, inside, steps, features, batch, total, offset):
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


_in_spans = spans_of(_span)


@compiled()
def sequence_gather(outside, lengths, inside, steps, features, batch, total, offset):
    arguments = outside, lengths, inside, steps, features, batch, total, offset
    _in_spans(steps * features * batch, steps, arguments)


KERNEL = kernel(sequence_gather, lambda s: one_thread_per(s["steps"] * s["features"] * s["batch"]))

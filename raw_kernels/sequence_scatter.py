"""Sequences from the layout of the scans over time to a layer's."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled


@compiled()
def _span(start, end, inside, lengths, outside, steps, rows, features, batch, total, offset):
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


_in_spans = spans_of(_span)


@compiled()
def sequence_scatter(inside, lengths, outside, steps, rows, features, batch, total, offset):
    arguments = inside, lengths, outside, steps, rows, features, batch, total, offset
    _in_spans(steps * features * batch, steps, arguments)


KERNEL = kernel(sequence_scatter, lambda s: one_thread_per(s["steps"] * s["features"] * s["batch"]))

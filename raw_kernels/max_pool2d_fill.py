"""Values of max-pooling's transposed Jacobian."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of, tile_width
from bppsa_cupy.system.compiled import compiled


@compiled()
def _span(start, end, indices, window, candidate, values, windows, batch):
    width, samples, stride = tile_width(batch), np.uint64(batch), np.uint64(windows)
    for left in range(start, end, width):
        right = min(left + width, end)
        for top in range(np.uint64(0), samples, np.uint64(LANES)):
            for sample in range(top, min(top + np.uint64(LANES), samples)):
                for entry in range(left, right):
                    maximum = indices[sample * stride + np.uint64(window[entry])]
                    hit = maximum == np.int32(candidate[entry])
                    values[entry * samples + sample] = 1 if hit else 0


_in_spans = spans_of(_span)


@compiled()
def max_pool2d_fill(indices, window, candidate, values, windows, entries, batch):
    _in_spans(entries * batch, entries, (indices, window, candidate, values, windows, batch))


KERNEL = kernel(max_pool2d_fill, lambda s: one_thread_per(s["entries"] * s["batch"]))

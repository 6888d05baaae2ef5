"""Batch normalisation: the output, by given statistics."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled


@compiled()
def _planes(start, end, input, mean, inverse_std, weight, bias, output, channels, positions, affine):
    """The planes from `start` to `end`, counted over samples."""
    length = np.uint64(positions)
    for plane in range(start, end):
        channel = plane % np.uint64(channels)
        center, scale, shift = mean[channel], inverse_std[channel], input.dtype.type(0)
        if affine:
            scale, shift = scale * weight[channel], bias[channel]
        for k in range(plane * length, (plane + np.uint64(1)) * length):
            output[k] = (input[k] - center) * scale + shift


_in_spans = spans_of(_planes)


@compiled()
def batch_norm_forward(input, mean, inverse_std, weight, bias, output, batch, channels, positions, affine):
    arguments = (input, mean, inverse_std, weight, bias, output, channels, positions, affine)
    _in_spans(batch * channels * positions, batch * channels, arguments)


KERNEL = kernel(batch_norm_forward, lambda s: one_thread_per(s["batch"] * s["channels"] * s["positions"]))

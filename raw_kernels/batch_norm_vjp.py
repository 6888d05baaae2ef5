"""Batch normalisation: the gradient by the input."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled


@compiled()
def _planes(
    start, end, input, gradient, mean, inverse_std, weight, weight_gradient, bias_gradient, input_gradient,
    count, channels, positions, affine, coupled,
):  # fmt: skip
    """The planes from `start` to `end`, counted over samples."""
    length = np.uint64(positions)
    for plane in range(start, end):
        channel = plane % np.uint64(channels)
        inverse = inverse_std[channel]
        scale = inverse * weight[channel] if affine else inverse
        first, last = plane * length, (plane + np.uint64(1)) * length
        if not coupled:
            for k in range(first, last):
                input_gradient[k] = gradient[k] * scale
            continue
        center, shift = mean[channel], bias_gradient[channel] / count
        slope = weight_gradient[channel] * inverse / count
        for k in range(first, last):
            input_gradient[k] = (gradient[k] - shift - (input[k] - center) * slope) * scale


_in_spans = spans_of(_planes)


@compiled()
def batch_norm_vjp(
    input, gradient, mean, inverse_std, weight, weight_gradient, bias_gradient, input_gradient, batch,
    channels, positions, affine, coupled,
):  # fmt: skip
    arguments = (
        input, gradient, mean, inverse_std, weight, weight_gradient, bias_gradient, input_gradient,
        input.dtype.type(batch * positions), channels, positions, affine, coupled,
    )  # fmt: skip
    _in_spans(batch * channels * positions, batch * channels, arguments)


KERNEL = kernel(batch_norm_vjp, lambda s: one_thread_per(s["batch"] * s["channels"] * s["positions"]))

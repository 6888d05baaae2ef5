"""Batch normalisation: the gradients by weight and bias."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.operators.planes import channel_products
from bppsa_cupy.raw_kernels.twins.scans.batched import one_block_per
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled

#: Threads of a block, which share a channel; the .cu text counts on it.
THREADS = 256


@compiled()
def _channels(
    start, end, input, gradient, mean, inverse_std, weight_gradient, bias_gradient, batch, channels, positions
):
    """The channels from `start` to `end`."""
    for channel in range(np.int64(start), np.int64(end)):
        center = mean[channel]
        plain, weighted = channel_products(input, gradient, center, batch, channels, positions, channel)
        weight_gradient[channel] = weighted * inverse_std[channel]
        bias_gradient[channel] = plain


_in_spans = spans_of(_channels)


@compiled()
def batch_norm_weight_gradient(
    input, gradient, mean, inverse_std, weight_gradient, bias_gradient, batch, channels, positions
):
    arguments = (
        input, gradient, mean, inverse_std, weight_gradient, bias_gradient, batch, channels, positions
    )  # fmt: skip
    _in_spans(batch * channels * positions, channels, arguments)


KERNEL = kernel(batch_norm_weight_gradient, lambda s: one_block_per(s["channels"], THREADS))

"""Batch normalisation: the statistics of a batch, and the running ones."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.operators.planes import channel_squares, channel_sum
from bppsa_cupy.raw_kernels.twins.scans.batched import one_block_per
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled

#: Threads of a block, which share a channel; the .cu text counts on it.
THREADS = 256


@compiled()
def _channels(
    start, end, input, batches, mean, inverse_std, running_mean, running_var, batch, channels, positions,
    tracked, eps, momentum,
):  # fmt: skip
    """The channels from `start` to `end`."""
    count, one = batch * positions, input.dtype.type(1)
    for channel in range(np.int64(start), np.int64(end)):
        center = input.dtype.type(channel_sum(input, batch, channels, positions, channel) / count)
        squares = channel_squares(input, center, batch, channels, positions, channel)
        mean[channel] = center
        inverse_std[channel] = 1.0 / np.sqrt(squares / count + eps)
        if tracked:
            share = input.dtype.type(1.0 / batches[0] if momentum < 0 else momentum)
            unbiased = input.dtype.type(squares / max(count - 1, 1))
            running_mean[channel] = (one - share) * running_mean[channel] + share * center
            running_var[channel] = (one - share) * running_var[channel] + share * unbiased


_in_spans = spans_of(_channels)


@compiled()
def batch_norm_statistics(
    input, batches, mean, inverse_std, running_mean, running_var, batch, channels, positions, tracked, eps,
    momentum,
):  # fmt: skip
    arguments = (
        input, batches, mean, inverse_std, running_mean, running_var, batch, channels, positions, tracked,
        eps, momentum,
    )  # fmt: skip
    _in_spans(batch * channels * positions, channels, arguments)


KERNEL = kernel(batch_norm_statistics, lambda s: one_block_per(s["channels"], THREADS))

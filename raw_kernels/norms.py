"""Batch normalisation."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.scans.batched import one_block_per
from bppsa_cupy.raw_kernels.twins.simd.planes import channel_products, channel_squares, channel_sum
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled

# ---- batch_norm_statistics ----

#: Threads of a block, which share a channel; the .cu text counts on it.
SUM_THREADS = 1024


@spans_of
@compiled()
def _statistics_channels(
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


@kernel(lambda s: one_block_per(s["channels"], SUM_THREADS))
@compiled()
def batch_norm_statistics(
    input, batches, mean, inverse_std, running_mean, running_var, batch, channels, positions, tracked, eps,
    momentum,
):  # fmt: skip
    arguments = (
        input, batches, mean, inverse_std, running_mean, running_var, batch, channels, positions, tracked,
        eps, momentum,
    )  # fmt: skip
    _statistics_channels(batch * channels * positions, channels, arguments)


# ---- batch_norm_forward ----


@spans_of
@compiled()
def _forward_planes(start, end, input, mean, inverse_std, weight, bias, output, channels, positions, affine):
    """The planes from `start` to `end`, counted over samples."""
    length = np.uint64(positions)
    for plane in range(start, end):
        channel = plane % np.uint64(channels)
        center, scale, shift = mean[channel], inverse_std[channel], input.dtype.type(0)
        if affine:
            scale, shift = scale * weight[channel], bias[channel]
        for k in range(plane * length, (plane + np.uint64(1)) * length):
            output[k] = (input[k] - center) * scale + shift


@kernel(lambda s: one_thread_per(s["batch"] * s["channels"] * s["positions"]))
@compiled()
def batch_norm_forward(input, mean, inverse_std, weight, bias, output, batch, channels, positions, affine):
    arguments = (input, mean, inverse_std, weight, bias, output, channels, positions, affine)
    _forward_planes(batch * channels * positions, batch * channels, arguments)


# ---- batch_norm_vjp ----


@spans_of
@compiled()
def _vjp_planes(
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


@kernel(lambda s: one_thread_per(s["batch"] * s["channels"] * s["positions"]))
@compiled()
def batch_norm_vjp(
    input, gradient, mean, inverse_std, weight, weight_gradient, bias_gradient, input_gradient, batch,
    channels, positions, affine, coupled,
):  # fmt: skip
    arguments = (
        input, gradient, mean, inverse_std, weight, weight_gradient, bias_gradient, input_gradient,
        input.dtype.type(batch * positions), channels, positions, affine, coupled,
    )  # fmt: skip
    _vjp_planes(batch * channels * positions, batch * channels, arguments)


# ---- batch_norm_weight_gradient ----


@spans_of
@compiled()
def _weight_gradient_channels(
    start, end, input, gradient, mean, inverse_std, weight_gradient, bias_gradient, batch, channels, positions
):
    """The channels from `start` to `end`."""
    for channel in range(np.int64(start), np.int64(end)):
        center = mean[channel]
        plain, weighted = channel_products(input, gradient, center, batch, channels, positions, channel)
        weight_gradient[channel] = weighted * inverse_std[channel]
        bias_gradient[channel] = plain


@kernel(lambda s: one_block_per(s["channels"], SUM_THREADS))
@compiled()
def batch_norm_weight_gradient(
    input, gradient, mean, inverse_std, weight_gradient, bias_gradient, batch, channels, positions
):
    arguments = (
        input, gradient, mean, inverse_std, weight_gradient, bias_gradient, batch, channels, positions
    )  # fmt: skip
    _weight_gradient_channels(batch * channels * positions, channels, arguments)

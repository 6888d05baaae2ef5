"""Batch normalisation: the gradients by weight and bias."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.batched import one_block_per
from bppsa_cupy.raw_kernels.twins.planes import channel_products
from bppsa_cupy.system.compiled import compiled

#: Threads of a block, which share a channel; the .cu text counts on it.
THREADS = 256


@compiled(parallel=True)
def batch_norm_weight_gradient(
    input, gradient, mean, inverse_std, weight_gradient, bias_gradient, batch, channels, positions
):
    for item in prange(channels):
        channel = np.int64(item)
        plain, weighted = channel_products(
            input, gradient, mean[channel], batch, channels, positions, channel
        )
        weight_gradient[channel] = weighted * inverse_std[channel]
        bias_gradient[channel] = plain


KERNEL = kernel(batch_norm_weight_gradient, lambda s: one_block_per(s["channels"], THREADS))

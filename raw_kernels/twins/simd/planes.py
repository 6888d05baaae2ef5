"""Sums over the planes of one channel of a batch, (batch, channels, positions): 16 partial sums a plane, and
those of the planes in float64."""

import numpy as np

from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, load, spread, store
from bppsa_cupy.system.compiled import compiled


@compiled()
def total(lanes, partial):
    """The sum of all lanes, in float64; `partial` (LANES,) is overwritten."""
    store(partial, np.uint64(0), lanes)
    result = 0.0
    for lane in range(np.uint64(LANES)):
        result += partial[lane]
    return result


@compiled()
def channel_sum(x, batch, channels, positions, channel):
    """Σ x over the channel."""
    step, length = np.uint64(LANES), np.uint64(positions)
    full = length - length % step
    partial, result = np.empty(LANES, x.dtype), 0.0
    for sample in range(batch):
        start = np.uint64((sample * channels + channel) * positions)
        if full:
            lanes = spread(x.dtype.type(0))
            for k in range(np.uint64(0), full, step):
                lanes = lanes + load(x, start + k)
            result += total(lanes, partial)
        for k in range(full, length):
            result += x[start + k]
    return result


@compiled()
def channel_squares(x, center, batch, channels, positions, channel):
    """Σ (x - center)² over the channel; `center` is of x's dtype."""
    step, length = np.uint64(LANES), np.uint64(positions)
    full = length - length % step
    partial, result = np.empty(LANES, x.dtype), 0.0
    for sample in range(batch):
        start = np.uint64((sample * channels + channel) * positions)
        if full:
            lanes = spread(x.dtype.type(0))
            for k in range(np.uint64(0), full, step):
                deviation = load(x, start + k) - center
                lanes = lanes + deviation * deviation
            result += total(lanes, partial)
        for k in range(full, length):
            rest = x[start + k] - center
            result += rest * rest
    return result


@compiled()
def channel_products(x, y, center, batch, channels, positions, channel):
    """(Σ y, Σ y (x - center)) over the channel; `center` is of x's dtype."""
    step, length = np.uint64(LANES), np.uint64(positions)
    full = length - length % step
    partial, plain, weighted = np.empty(LANES, x.dtype), 0.0, 0.0
    for sample in range(batch):
        start = np.uint64((sample * channels + channel) * positions)
        if full:
            sums = spread(x.dtype.type(0))
            products = spread(x.dtype.type(0))
            for k in range(np.uint64(0), full, step):
                value = load(y, start + k)
                sums = sums + value
                products = products + value * (load(x, start + k) - center)
            plain += total(sums, partial)
            weighted += total(products, partial)
        for k in range(full, length):
            plain += y[start + k]
            weighted += y[start + k] * (x[start + k] - center)
    return plain, weighted

// The gradient of batch normalisation by its input, one thread an element: γ/σ·(g - Σg/N - x̂·Σ(g·x̂)/N) where
// the statistics are those of the batch, of N values a channel, and γ/σ·g where they are fixed.

#include "prelude.cuh"

extern "C" __global__ void batch_norm_vjp(
    const real* __restrict__ input,            // (batch, channels, positions)
    const real* __restrict__ gradient,         // (batch, channels, positions)
    const real* __restrict__ mean,             // (channels)
    const real* __restrict__ inverse_std,      // (channels)
    const real* __restrict__ weight,           // (channels) if affine else (0)
    const real* __restrict__ weight_gradient,  // (channels) if coupled else (0): Σ(g·x̂)
    const real* __restrict__ bias_gradient,    // (channels) if coupled else (0): Σg
    real* __restrict__ input_gradient,         // (batch, channels, positions) output only
    size_type batch, size_type channels, size_type positions, size_type affine,
    size_type coupled  // whether the statistics are those of the batch
)
{
    const real count = real(batch * positions);
    GRID_STRIDE(item, batch * channels * positions) {
        const size_type channel = item / positions % channels;
        const real inverse = inverse_std[channel];
        const real scale = affine ? inverse * weight[channel] : inverse;
        real value = gradient[item];
        if (coupled) {
            const real slope = weight_gradient[channel] * inverse / count;
            value = value - bias_gradient[channel] / count - (input[item] - mean[channel]) * slope;
        }
        input_gradient[item] = value * scale;
    }
}

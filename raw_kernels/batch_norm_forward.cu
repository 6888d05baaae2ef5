// Batch normalisation, one thread an element: (x - mean) / std of its channel, times the weight, plus the bias.

#include "prelude.cuh"

extern "C" __global__ void batch_norm_forward(
    const real* __restrict__ input,        // (batch, channels, positions)
    const real* __restrict__ mean,         // (channels)
    const real* __restrict__ inverse_std,  // (channels)
    const real* __restrict__ weight,       // (channels) if affine else (0)
    const real* __restrict__ bias,         // (channels) if affine else (0)
    real* __restrict__ output,             // (batch, channels, positions) output only
    size_type batch, size_type channels, size_type positions, size_type affine)
{
    GRID_STRIDE(item, batch * channels * positions) {
        const size_type channel = item / positions % channels;
        const real scale = affine ? inverse_std[channel] * weight[channel] : inverse_std[channel];
        const real shift = affine ? bias[channel] : real(0);
        output[item] = (input[item] - mean[channel]) * scale + shift;
    }
}

// The gradients of batch normalisation by weight and bias: a channel's sums of the gradient times the
// normalised input, and of the gradient; one block a channel: thread t takes every 256th term from t on, then
// the block adds its partial sums pairwise. Wants 256 threads a block; the grid may have any size.

#include "prelude.cuh"
#include "block_sum.cuh"

#define THREADS 256

extern "C" __global__ void batch_norm_weight_gradient(
    const real* __restrict__ input,        // (batch, channels, positions)
    const real* __restrict__ gradient,     // (batch, channels, positions)
    const real* __restrict__ mean,         // (channels)
    const real* __restrict__ inverse_std,  // (channels)
    real* __restrict__ weight_gradient,    // (channels) output only
    real* __restrict__ bias_gradient,      // (channels) output only
    size_type batch, size_type channels, size_type positions)
{
    __shared__ real partial[THREADS];
    for (size_type channel = blockIdx.x; channel < channels; channel += gridDim.x) {
        const real center = mean[channel];
        real sum = real(0), products = real(0);
        for (size_type term = threadIdx.x; term < batch * positions; term += THREADS) {
            const size_type item = (term / positions * channels + channel) * positions + term % positions;
            sum += gradient[item];
            products += gradient[item] * (input[item] - center);
        }
        sum = block_sum(sum, partial);
        products = block_sum(products, partial);
        if (threadIdx.x == 0) {
            weight_gradient[channel] = products * inverse_std[channel];
            bias_gradient[channel] = sum;
        }
    }
}

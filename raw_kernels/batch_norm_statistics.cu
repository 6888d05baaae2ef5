// The statistics of a batch for batch normalisation, and the running ones that follow them; one block a
// channel: thread t takes every 256th value from t on, then the block adds its partial sums pairwise. The
// variance is the mean of the squared deviations, so that a large mean costs it no digits. Wants 256 threads a
// block, and at least one value a channel; the grid may have any size.

#include "prelude.cuh"
#include "block_sum.cuh"

#define THREADS 256

extern "C" __global__ void batch_norm_statistics(
    const real* __restrict__ input,          // (batch, channels, positions)
    const long long* __restrict__ batches,   // (1) if tracked else (0): batches tracked, with this one
    real* __restrict__ mean,                 // (channels) output only
    real* __restrict__ inverse_std,          // (channels) output only, 1 / sqrt(variance + eps)
    real* __restrict__ running_mean,         // (channels) if tracked else (0) input and output
    real* __restrict__ running_var,          // (channels) if tracked else (0) input and output, unbiased
    size_type batch, size_type channels, size_type positions, size_type tracked, double eps,
    double momentum  // below 0: 1 / batches, so that the running statistics are means over the batches
)
{
    __shared__ real partial[THREADS];
    const size_type count = batch * positions;
    for (size_type channel = blockIdx.x; channel < channels; channel += gridDim.x) {
        real sum = real(0);
        for (size_type term = threadIdx.x; term < count; term += THREADS)
            sum += input[(term / positions * channels + channel) * positions + term % positions];
        const real center = block_sum(sum, partial) / real(count);
        real squares = real(0);
        for (size_type term = threadIdx.x; term < count; term += THREADS) {
            const real deviation =
                input[(term / positions * channels + channel) * positions + term % positions] - center;
            squares += deviation * deviation;
        }
        squares = block_sum(squares, partial);
        if (threadIdx.x == 0) {
            mean[channel] = center;
            inverse_std[channel] = real(1) / sqrt(squares / real(count) + real(eps));
            if (tracked) {
                const real share = real(momentum < 0 ? 1.0 / double(batches[0]) : momentum);
                const real unbiased = squares / real(count > 1 ? count - 1 : 1);
                running_mean[channel] = (real(1) - share) * running_mean[channel] + share * center;
                running_var[channel] = (real(1) - share) * running_var[channel] + share * unbiased;
            }
        }
    }
}

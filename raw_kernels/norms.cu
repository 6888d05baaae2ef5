// Batch normalisation.

#include "prelude.cuh"
#include "planes.cuh"

// Threads of a block that share a channel.
const int THREADS = 1024;

// The places of every THREADS-th value of a channel, from that of the thread on.
struct Places {
    size_type place, position, positions, beyond, steps, step;

    __device__ __forceinline__ Places(size_type channel, size_type channels, size_type positions)
        : positions(positions), beyond((channels - 1) * positions)
    {
        const size_type first = threadIdx.x / positions;
        position = threadIdx.x - first * positions;
        place = (first * channels + channel) * positions + position;
        steps = THREADS % positions;
        step = THREADS / positions * channels * positions + steps;
    }

    __device__ __forceinline__ void go_on()
    {
        place += step, position += steps;
        if (position >= positions) position -= positions, place += beyond;
    }
};

// ---- batch_norm_statistics ----

#include "block_sum.cuh"

// The statistics of a batch for batch normalisation, and the running ones that follow them; one block a
// channel: thread t takes every THREADS-th value from t on, then the block adds its partial sums pairwise. The
// variance is the mean of the squared deviations, so that a large mean costs it no digits. Wants THREADS threads a
// block, and at least one value a channel; the grid may have any size.

extern "C" __global__ void __launch_bounds__(THREADS) batch_norm_statistics(
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
        Places values(channel, channels, positions);
#pragma unroll 4
        for (size_type term = threadIdx.x; term < count; term += THREADS, values.go_on()) sum += input[values.place];
        const real center = block_sum(sum, partial) / real(count);
        real squares = real(0);
        Places again(channel, channels, positions);
#pragma unroll 4
        for (size_type term = threadIdx.x; term < count; term += THREADS, again.go_on()) {
            const real deviation = input[again.place] - center;
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

// ---- batch_norm_forward ----

// Batch normalisation, one thread an element: (x - mean) / std of its channel, times the weight, plus the bias.
extern "C" __global__ void batch_norm_forward(
    const real* __restrict__ input,        // (batch, channels, positions)
    const real* __restrict__ mean,         // (channels)
    const real* __restrict__ inverse_std,  // (channels)
    const real* __restrict__ weight,       // (channels) if affine else (0)
    const real* __restrict__ bias,         // (channels) if affine else (0)
    real* __restrict__ output,             // (batch, channels, positions) output only
    size_type batch, size_type channels, size_type positions, size_type affine)
{
    for_each_element(batch, channels, positions, [&](size_type, int channel, int, size_type item) {
        const real scale = affine ? inverse_std[channel] * weight[channel] : inverse_std[channel];
        const real shift = affine ? bias[channel] : real(0);
        output[item] = (input[item] - mean[channel]) * scale + shift;
    });
}

// ---- batch_norm_vjp ----

// The gradient of batch normalisation by its input, one thread an element: γ/σ·(g - Σg/N - x̂·Σ(g·x̂)/N) where
// the statistics are those of the batch, of N values a channel, and γ/σ·g where they are fixed.
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
    for_each_element(batch, channels, positions, [&](size_type, int channel, int, size_type item) {
        const real inverse = inverse_std[channel];
        const real scale = affine ? inverse * weight[channel] : inverse;
        real value = gradient[item];
        if (coupled) {
            const real slope = weight_gradient[channel] * inverse / count;
            value = value - bias_gradient[channel] / count - (input[item] - mean[channel]) * slope;
        }
        input_gradient[item] = value * scale;
    });
}

// ---- batch_norm_weight_gradient ----

#include "block_sum.cuh"

// The gradients of batch normalisation by weight and bias: a channel's sums of the gradient times the
// normalised input, and of the gradient; one block a channel: thread t takes every THREADS-th term from t on, then
// the block adds its partial sums pairwise. Wants THREADS threads a block; the grid may have any size.

extern "C" __global__ void __launch_bounds__(THREADS) batch_norm_weight_gradient(
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
        Places values(channel, channels, positions);
#pragma unroll 4
        for (size_type term = threadIdx.x; term < batch * positions; term += THREADS, values.go_on()) {
            const real slope = gradient[values.place];
            sum += slope;
            products += slope * (input[values.place] - center);
        }
        sum = block_sum(sum, partial);
        products = block_sum(products, partial);
        if (threadIdx.x == 0) {
            weight_gradient[channel] = products * inverse_std[channel];
            bias_gradient[channel] = sum;
        }
    }
}

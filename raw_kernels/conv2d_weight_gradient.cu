// The gradients of a two-dimensional convolution by weight and bias, one block a sum: thread t takes
// every 128th term from t on, then the block adds its 128 partial sums pairwise. Wants 128 threads a block;
// the grid may have any size.

#include "prelude.cuh"

#define THREADS 128

// A term of the sums: a position of the output of one sample.
struct Term {
    int sample, y, x;
};

__device__ __forceinline__ Term term_at(int number, int rows, int columns)
{
    return {number / columns / rows, number / columns % rows, number % columns};
}

// How a sum goes through a thread's terms: where the first one lies, and by how much each next one lies on, so that
// no term takes a division.
struct Terms {
    Term first, apart;
    size_type count, in_apart, out_apart;
    int height, width, rows, columns, down, right;

    // The sum of the products of the gradient, from `value` on, and what a tap meets of the input, from `image`
    // on; of the gradient alone where not WEIGHT.
    template <bool WEIGHT>
    __device__ __forceinline__ real sum(
        const real* __restrict__ value, const real* __restrict__ image, int offset_y, int offset_x) const
    {
        // Terms whose loads are under way at once; biases are few.
        constexpr int TOGETHER = WEIGHT ? 4 : 2;
        const size_type value_apart = apart.sample * out_apart + apart.y * columns + apart.x;
        value += first.sample * out_apart + first.y * columns + first.x;
        image += first.sample * in_apart;
        int y = first.y, x = first.x;
        real sum = real(0);
#pragma unroll 1
        for (size_type left = count - threadIdx.x; left > 0; left -= TOGETHER * THREADS) {
            real values[TOGETHER], others[TOGETHER];
#pragma unroll
            for (int t = 0; t < TOGETHER; ++t) {
                const int in_y = y * down + offset_y, in_x = x * right + offset_x;
                const bool inside = in_y >= 0 && in_y < height && in_x >= 0 && in_x < width;
                const bool meets = left > t * THREADS && (inside || !WEIGHT);
                values[t] = meets ? *value : real(0);
                others[t] = WEIGHT && meets ? image[in_y * width + in_x] : real(1);
                x += apart.x;
                const bool past_row = x >= columns;
                x -= past_row ? columns : 0;
                y += apart.y + past_row;
                const bool past_plane = y >= rows;
                y -= past_plane ? rows : 0;
                value += value_apart + (past_plane ? out_apart - rows * columns : 0);
                image += apart.sample * in_apart + (past_plane ? in_apart : 0);
            }
#pragma unroll
            for (int t = 0; t < TOGETHER; ++t) sum += values[t] * others[t];
        }
        return sum;
    }
};

extern "C" __global__ void conv2d_weight_gradient(
    const real* __restrict__ input,      // (batch, in_channels, in_height, in_width)
    const real* __restrict__ gradient,   // (batch, out_channels, out_height, out_width)
    real* __restrict__ weight_gradient,  // (out_channels, in_channels // groups, kernel_height,
                                         // kernel_width) output only
    real* __restrict__ bias_gradient,    // (out_channels) if biased else (0) output only
    size_type batch, size_type in_channels, size_type in_height, size_type in_width,
    size_type out_channels, size_type out_height, size_type out_width, size_type kernel_height,
    size_type kernel_width, size_type stride_y, size_type stride_x, size_type padding_y,
    size_type padding_x, size_type dilation_y, size_type dilation_x, size_type groups, size_type biased)
{
    __shared__ real partial[THREADS];
    const size_type channels = in_channels / groups, features = out_channels / groups;
    const size_type taps = kernel_height * kernel_width, out_plane = out_height * out_width;
    const size_type weights = out_channels * channels * taps, sums = weights + (biased ? out_channels : 0);
    const int rows = out_height, columns = out_width;
    const Terms terms = {term_at(threadIdx.x, rows, columns), term_at(THREADS, rows, columns),
                         batch * out_plane, in_channels * in_height * in_width, out_channels * out_plane,
                         int(in_height), int(in_width), rows, columns, int(stride_y), int(stride_x)};
    for (size_type item = blockIdx.x; item < sums; item += gridDim.x) {
        const bool is_weight = item < weights;
        const size_type feature = is_weight ? item / (channels * taps) : item - weights;
        const size_type channel = feature / features * channels + (is_weight ? item / taps % channels : 0);
        const int offset_y = item / kernel_width % kernel_height * dilation_y - padding_y;
        const int offset_x = item % kernel_width * dilation_x - padding_x;
        const real* const value = gradient + feature * out_plane;
        const real* const image = input + channel * in_height * in_width;
        const real sum = is_weight ? terms.sum<true>(value, image, offset_y, offset_x)
                                   : terms.sum<false>(value, image, 0, 0);
        partial[threadIdx.x] = sum;
        __syncthreads();
        for (int half = THREADS / 2; half > 0; half /= 2) {
            if (threadIdx.x < (unsigned)half) partial[threadIdx.x] += partial[threadIdx.x + half];
            __syncthreads();
        }
        if (threadIdx.x == 0) (is_weight ? weight_gradient[item] : bias_gradient[feature]) = partial[0];
        __syncthreads();
    }
}

// The gradients of a two-dimensional convolution by weight and bias, one block a sum: thread t takes
// every 128th term from t on, then the block adds its 128 partial sums pairwise. Wants 128 threads a block;
// the grid may have any size.

#include "prelude.cuh"
#include "convolution_terms.cuh"

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

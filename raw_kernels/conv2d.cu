// Two-dimensional convolution.

#include "prelude.cuh"

// ---- conv2d_forward ----

// Two-dimensional convolution, one thread an output: the sum over the taps that fall inside.
extern "C" __global__ void conv2d_forward(
    const real* __restrict__ input,   // (batch, in_channels, in_height, in_width)
    const real* __restrict__ weight,  // (out_channels, in_channels // groups, kernel_height, kernel_width)
    const real* __restrict__ bias,    // (out_channels) if biased else (0)
    real* __restrict__ output,        // (batch, out_channels, out_height, out_width) output only
    size_type batch, size_type in_channels, size_type in_height, size_type in_width,
    size_type out_channels, size_type out_height, size_type out_width, size_type kernel_height,
    size_type kernel_width, size_type stride_y, size_type stride_x, size_type padding_y,
    size_type padding_x, size_type dilation_y, size_type dilation_x, size_type groups, size_type biased)
{
    const size_type channels = in_channels / groups, features = out_channels / groups;
    GRID_STRIDE(item, batch * out_channels * out_height * out_width) {
        const size_type column = item % out_width, row = item / out_width % out_height;
        const size_type feature = item / (out_width * out_height) % out_channels;
        const size_type sample = item / (out_width * out_height * out_channels);
        const real* plane = input + (sample * in_channels + feature / features * channels) * in_height * in_width;
        const real* tap = weight + feature * channels * kernel_height * kernel_width;
        real sum = biased ? bias[feature] : real(0);
        for (size_type c = 0; c < channels; ++c, plane += in_height * in_width)
            for (size_type i = 0; i < kernel_height; ++i) {
                const size_type y = row * stride_y + i * dilation_y - padding_y;
                for (size_type j = 0; j < kernel_width; ++j, ++tap) {
                    const size_type x = column * stride_x + j * dilation_x - padding_x;
                    if (y >= 0 && y < in_height && x >= 0 && x < in_width)
                        sum += *tap * plane[y * in_width + x];
                }
            }
        output[item] = sum;
    }
}

// ---- conv2d_vjp ----

// The gradient of a two-dimensional convolution by its input, one thread an input: the sum over the
// outputs whose windows hold it, so no two threads add to one place.
extern "C" __global__ void conv2d_vjp(
    const real* __restrict__ gradient,  // (batch, out_channels, out_height, out_width)
    const real* __restrict__ weight,    // (out_channels, in_channels // groups, kernel_height,
                                        // kernel_width)
    real* __restrict__ input_gradient,  // (batch, in_channels, in_height, in_width) output only
    size_type batch, size_type in_channels, size_type in_height, size_type in_width,
    size_type out_channels, size_type out_height, size_type out_width, size_type kernel_height,
    size_type kernel_width, size_type stride_y, size_type stride_x, size_type padding_y,
    size_type padding_x, size_type dilation_y, size_type dilation_x, size_type groups)
{
    const size_type channels = in_channels / groups, features = out_channels / groups;
    const size_type taps = kernel_height * kernel_width, out_plane = out_height * out_width;
    GRID_STRIDE(item, batch * in_channels * in_height * in_width) {
        const size_type column = item % in_width, row = item / in_width % in_height;
        const size_type channel = item / (in_width * in_height) % in_channels;
        const size_type sample = item / (in_width * in_height * in_channels);
        const size_type first = channel / channels * features;
        const real* planes = gradient + (sample * out_channels + first) * out_plane;
        const real* kernels = weight + (first * channels + channel % channels) * taps;
        real sum = real(0);
        for (size_type i = 0; i < kernel_height; ++i) {
            const size_type down = row + padding_y - i * dilation_y, y = down / stride_y;
            if (down < 0 || down % stride_y != 0 || y >= out_height) continue;
            for (size_type j = 0; j < kernel_width; ++j) {
                const size_type across = column + padding_x - j * dilation_x, x = across / stride_x;
                if (across < 0 || across % stride_x != 0 || x >= out_width) continue;
                for (size_type f = 0; f < features; ++f)
                    sum += kernels[f * channels * taps + i * kernel_width + j]
                        * planes[f * out_plane + y * out_width + x];
            }
        }
        input_gradient[item] = sum;
    }
}

// ---- conv2d_weight_gradient ----

#include "convolution_terms.cuh"

// The gradients of a two-dimensional convolution by weight and bias, one block a sum: thread t takes
// every 128th term from t on, then the block adds its 128 partial sums pairwise. Wants 128 threads a block;
// the grid may have any size.
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

// ---- conv2d_unfold ----

// The patches of a two-dimensional convolution as a matrix, a row a channel and tap, a column a position of the output;
// 0 where a tap lies in the padding. One thread a channel and position: it writes its column, neighbours beside it.
extern "C" __global__ void conv2d_unfold(
    const real* __restrict__ input,  // (batch, in_channels, in_height, in_width)
    real* __restrict__ patches,      // (in_channels, kernel_height, kernel_width, batch, out_height, out_width)
                                     // output only
    size_type batch, size_type in_channels, size_type in_height, size_type in_width, size_type out_height,
    size_type out_width, size_type kernel_height, size_type kernel_width, size_type stride_y, size_type stride_x,
    size_type padding_y, size_type padding_x, size_type dilation_y, size_type dilation_x)
{
    const int height = in_height, width = in_width, rows = out_height, columns = out_width;
    const size_type positions = batch * rows * columns;
    GRID_STRIDE(item, in_channels * positions) {
        const size_type channel = item / positions, position = item - channel * positions;
        const size_type sample = position / (rows * columns);
        const int place = position - sample * (rows * columns), row = place / columns;
        const int top = row * int(stride_y) - int(padding_y);
        const int left = (place - row * columns) * int(stride_x) - int(padding_x);
        const real* const plane = input + (sample * in_channels + channel) * height * width;
        real* put = patches + channel * kernel_height * kernel_width * positions + position;
        for (int i = 0; i < kernel_height; ++i) {
            const int y = top + i * int(dilation_y);
            for (int j = 0; j < kernel_width; ++j, put += positions) {
                const int x = left + j * int(dilation_x);
                const bool inside = y >= 0 && y < height && x >= 0 && x < width;
                *put = inside ? plane[(size_type)y * width + x] : real(0);
            }
        }
    }
}

// ---- conv2d_fold ----

// The gradient by the input of a two-dimensional convolution from the one by its patches, the transpose of
// conv2d_unfold: one thread an input, the sum over the patches that hold it.

// The position of a window whose tap lies `offset` behind the first window's first tap, -1 where there is none.
__device__ __forceinline__ int window_at(int offset, int stride, int windows)
{
    const int window = stride == 1 ? offset : offset / stride;
    return offset >= 0 && window * stride == offset && window < windows ? window : -1;
}

extern "C" __global__ void conv2d_fold(
    const real* __restrict__ patches,   // (in_channels, kernel_height, kernel_width, batch, out_height, out_width)
    real* __restrict__ input_gradient,  // (batch, in_channels, in_height, in_width) output only
    size_type batch, size_type in_channels, size_type in_height, size_type in_width, size_type out_height,
    size_type out_width, size_type kernel_height, size_type kernel_width, size_type stride_y, size_type stride_x,
    size_type padding_y, size_type padding_x, size_type dilation_y, size_type dilation_x)
{
    const int height = in_height, width = in_width, rows = out_height, columns = out_width;
    const size_type positions = batch * rows * columns;
    GRID_STRIDE(item, batch * in_channels * in_height * in_width) {
        const size_type plane = item / (height * width), sample = plane / in_channels;
        const int place = item - plane * (height * width), row = place / width, column = place - row * width;
        const real* const first =
            patches + (plane - sample * in_channels) * kernel_height * kernel_width * positions + sample * rows * columns;
        real sum = real(0);
        for (int i = 0; i < kernel_height; ++i) {
            const int y = window_at(row + int(padding_y) - i * int(dilation_y), int(stride_y), rows);
            if (y < 0) continue;
            for (int j = 0; j < kernel_width; ++j) {
                const int x = window_at(column + int(padding_x) - j * int(dilation_x), int(stride_x), columns);
                if (x >= 0) sum += first[(i * kernel_width + j) * positions + y * columns + x];
            }
        }
        input_gradient[item] = sum;
    }
}

// The gradient by the input of a two-dimensional convolution from the one by its patches, the transpose of
// conv2d_unfold: one thread an input, the sum over the patches that hold it.

#include "prelude.cuh"

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

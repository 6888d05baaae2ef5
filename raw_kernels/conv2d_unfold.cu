// The patches of a two-dimensional convolution as a matrix, a row a channel and tap, a column a position of the output;
// 0 where a tap lies in the padding. One thread a channel and position: it writes its column, neighbours beside it.

#include "prelude.cuh"

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

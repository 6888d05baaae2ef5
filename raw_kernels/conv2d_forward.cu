// Two-dimensional convolution, one thread an output: the sum over the taps that fall inside.

#include "prelude.cuh"

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

// The gradient of a two-dimensional convolution by its input, one thread an input: the sum over the
// outputs whose windows hold it, so no two threads add to one place.

#include "prelude.cuh"

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

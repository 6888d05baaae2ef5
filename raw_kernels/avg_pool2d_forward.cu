// Two-dimensional average pooling, one thread an output: the window's sum over its divisor.

#include "prelude.cuh"
#include "avg_pool2d.cuh"

extern "C" __global__ void avg_pool2d_forward(
    const real* __restrict__ input,  // (planes, in_height, in_width)
    real* __restrict__ output,       // (planes, out_height, out_width) output only
    size_type planes, size_type in_height, size_type in_width, size_type out_height,
    size_type out_width, size_type kernel_height, size_type kernel_width, size_type stride_y,
    size_type stride_x, size_type padding_y, size_type padding_x, size_type dilation_y,
    size_type dilation_x, size_type count_include_pad, size_type divisor_override)
{
    GRID_STRIDE(item, planes * out_height * out_width) {
        const size_type column = item % out_width, row = item / out_width % out_height;
        const real* plane = input + item / (out_width * out_height) * in_height * in_width;
        real sum = real(0);
        for (size_type i = 0; i < kernel_height; ++i) {
            const size_type y = row * stride_y + i * dilation_y - padding_y;
            if (y < 0 || y >= in_height) continue;
            for (size_type j = 0; j < kernel_width; ++j) {
                const size_type x = column * stride_x + j * dilation_x - padding_x;
                if (x >= 0 && x < in_width) sum += plane[y * in_width + x];
            }
        }
        const size_type down = window_extent(row, stride_y, padding_y, kernel_height, in_height, count_include_pad);
        const size_type across = window_extent(column, stride_x, padding_x, kernel_width, in_width, count_include_pad);
        output[item] = sum / real(divisor_override ? divisor_override : down * across);
    }
}

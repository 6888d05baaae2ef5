// The gradient of two-dimensional average pooling by its input, one thread an input: the sum over
// the windows that hold it, in the order of the outputs, each over its divisor.

#include "prelude.cuh"
#include "avg_pool2d.cuh"

extern "C" __global__ void avg_pool2d_vjp(
    const real* __restrict__ gradient,  // (planes, out_height, out_width)
    real* __restrict__ input_gradient,  // (planes, in_height, in_width) output only
    size_type planes, size_type in_height, size_type in_width, size_type out_height,
    size_type out_width, size_type kernel_height, size_type kernel_width, size_type stride_y,
    size_type stride_x, size_type padding_y, size_type padding_x, size_type dilation_y,
    size_type dilation_x, size_type count_include_pad, size_type divisor_override)
{
    GRID_STRIDE(item, planes * in_height * in_width) {
        const size_type column = item % in_width, row = item / in_width % in_height;
        const real* plane = gradient + item / (in_width * in_height) * out_height * out_width;
        real sum = real(0);
        for (size_type i = kernel_height - 1; i >= 0; --i) {
            const size_type below = row + padding_y - i * dilation_y, y = below / stride_y;
            if (below < 0 || below % stride_y != 0 || y >= out_height) continue;
            const size_type down = window_extent(y, stride_y, padding_y, kernel_height, in_height, count_include_pad);
            for (size_type j = kernel_width - 1; j >= 0; --j) {
                const size_type right = column + padding_x - j * dilation_x, x = right / stride_x;
                if (right < 0 || right % stride_x != 0 || x >= out_width) continue;
                const size_type across =
                    window_extent(x, stride_x, padding_x, kernel_width, in_width, count_include_pad);
                sum += plane[y * out_width + x] / real(divisor_override ? divisor_override : down * across);
            }
        }
        input_gradient[item] = sum;
    }
}

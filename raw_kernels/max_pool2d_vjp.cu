// The gradient of two-dimensional max-pooling by its input, one thread an input: the sum over the
// windows that hold it and whose maximum it is, in the order of the outputs.

#include "prelude.cuh"

extern "C" __global__ void max_pool2d_vjp(
    const real* __restrict__ gradient,  // (planes, out_height, out_width)
    const int* __restrict__ indices,    // (planes, out_height, out_width): as max_pool2d_forward left them
    real* __restrict__ input_gradient,  // (planes, in_height, in_width) output only
    size_type planes, size_type in_height, size_type in_width, size_type out_height,
    size_type out_width, size_type kernel_height, size_type kernel_width, size_type stride_y,
    size_type stride_x, size_type padding_y, size_type padding_x, size_type dilation_y,
    size_type dilation_x)
{
    GRID_STRIDE(item, planes * in_height * in_width) {
        const size_type column = item % in_width, row = item / in_width % in_height;
        const size_type plane = item / (in_width * in_height) * (out_height * out_width);
        real sum = real(0);
        for (size_type i = kernel_height - 1; i >= 0; --i) {
            const size_type down = row + padding_y - i * dilation_y, y = down / stride_y;
            if (down < 0 || down % stride_y != 0 || y >= out_height) continue;
            for (size_type j = kernel_width - 1; j >= 0; --j) {
                const size_type across = column + padding_x - j * dilation_x, x = across / stride_x;
                if (across < 0 || across % stride_x != 0 || x >= out_width) continue;
                const size_type window = plane + y * out_width + x;
                if (indices[window] == (int)(row * in_width + column)) sum += gradient[window];
            }
        }
        input_gradient[item] = sum;
    }
}

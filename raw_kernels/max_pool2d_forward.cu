// Two-dimensional max-pooling, one thread an output. The first of equal maxima wins, a NaN wins over
// all (the last one's position is kept); a window with no candidate gives -infinity and position -1.

#include "prelude.cuh"

extern "C" __global__ void max_pool2d_forward(
    const real* __restrict__ input,  // (planes, in_height, in_width)
    real* __restrict__ output,       // (planes, out_height, out_width) output only
    int* __restrict__ indices,       // (planes, out_height, out_width) output only, the maximum's position
                                     // in its input plane
    size_type planes, size_type in_height, size_type in_width, size_type out_height,
    size_type out_width, size_type kernel_height, size_type kernel_width, size_type stride_y,
    size_type stride_x, size_type padding_y, size_type padding_x, size_type dilation_y,
    size_type dilation_x)
{
    GRID_STRIDE(item, planes * out_height * out_width) {
        const size_type column = item % out_width, row = item / out_width % out_height;
        const real* plane = input + item / (out_width * out_height) * in_height * in_width;
        real best = real(-INFINITY);
        int position = -1;
        for (size_type i = 0; i < kernel_height; ++i) {
            const size_type y = row * stride_y + i * dilation_y - padding_y;
            if (y < 0 || y >= in_height) continue;
            for (size_type j = 0; j < kernel_width; ++j) {
                const size_type x = column * stride_x + j * dilation_x - padding_x;
                if (x < 0 || x >= in_width) continue;
                const real value = plane[y * in_width + x];
                if (value > best || value != value || position < 0) {
                    best = value;
                    position = (int)(y * in_width + x);
                }
            }
        }
        output[item] = best;
        indices[item] = position;
    }
}

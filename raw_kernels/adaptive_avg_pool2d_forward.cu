// Two-dimensional adaptive average pooling, one thread an output: the mean of its window.

#include "prelude.cuh"
#include "adaptive_avg_pool2d.cuh"

extern "C" __global__ void adaptive_avg_pool2d_forward(
    const real* __restrict__ input,  // (planes, in_height, in_width)
    real* __restrict__ output,       // (planes, out_height, out_width) output only
    size_type planes, size_type in_height, size_type in_width, size_type out_height, size_type out_width)
{
    GRID_STRIDE(item, planes * out_height * out_width) {
        const size_type column = item % out_width, row = item / out_width % out_height;
        const real* plane = input + item / (out_width * out_height) * in_height * in_width;
        const size_type top = first_of(row, in_height, out_height), bottom = end_of(row, in_height, out_height);
        const size_type left = first_of(column, in_width, out_width), right = end_of(column, in_width, out_width);
        real sum = real(0);
        for (size_type y = top; y < bottom; ++y)
            for (size_type x = left; x < right; ++x) sum += plane[y * in_width + x];
        output[item] = sum / real((bottom - top) * (right - left));
    }
}

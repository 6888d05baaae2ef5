// Two-dimensional adaptive average pooling: the gradient by the input, one thread an input. By symmetry the
// windows that hold an input are the window of that position when inputs and outputs change places.

#include "prelude.cuh"
#include "adaptive_avg_pool2d.cuh"

extern "C" __global__ void adaptive_avg_pool2d_vjp(
    const real* __restrict__ gradient,  // (planes, out_height, out_width)
    real* __restrict__ input_gradient,  // (planes, in_height, in_width) output only
    size_type planes, size_type in_height, size_type in_width, size_type out_height, size_type out_width)
{
    GRID_STRIDE(item, planes * in_height * in_width) {
        const size_type column = item % in_width, row = item / in_width % in_height;
        const real* plane = gradient + item / (in_width * in_height) * out_height * out_width;
        const size_type top = first_of(row, out_height, in_height), bottom = end_of(row, out_height, in_height);
        const size_type left = first_of(column, out_width, in_width), right = end_of(column, out_width, in_width);
        real sum = real(0);
        for (size_type y = top; y < bottom; ++y) {
            const size_type down = end_of(y, in_height, out_height) - first_of(y, in_height, out_height);
            for (size_type x = left; x < right; ++x) {
                const size_type across = end_of(x, in_width, out_width) - first_of(x, in_width, out_width);
                sum += plane[y * out_width + x] / real(down * across);
            }
        }
        input_gradient[item] = sum;
    }
}

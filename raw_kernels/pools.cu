// Two-dimensional pooling: maximum and average.

#include "prelude.cuh"

// ---- max_pool2d_forward ----

// Two-dimensional max-pooling, one thread an output. The first of equal maxima wins, a NaN wins over
// all (the last one's position is kept); a window with no candidate gives -infinity and position -1.
extern "C" __global__ void max_pool2d_forward(
    const real* __restrict__ input,  // (planes, in_height, in_width)
    real* __restrict__ output,       // (planes, out_height, out_width) output only
    int* __restrict__ indices,       // (planes, out_height, out_width) output only, the maximum's position
                                     // in its input plane
    size_type planes, size_type in_height, size_type in_width, size_type out_height,
    size_type out_width, size_type kernel_height, size_type kernel_width, size_type stride_y,
    size_type stride_x, size_type padding_y, size_type padding_x)
{
    GRID_STRIDE(item, planes * out_height * out_width) {
        const size_type column = item % out_width, row = item / out_width % out_height;
        const real* plane = input + item / (out_width * out_height) * in_height * in_width;
        real best = real(-INFINITY);
        int position = -1;
        for (size_type i = 0; i < kernel_height; ++i) {
            const size_type y = row * stride_y + i - padding_y;
            if (y < 0 || y >= in_height) continue;
            for (size_type j = 0; j < kernel_width; ++j) {
                const size_type x = column * stride_x + j - padding_x;
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

// ---- max_pool2d_vjp ----

// The gradient of two-dimensional max-pooling by its input, one thread an input: the sum over the
// windows that hold it and whose maximum it is, in the order of the outputs.
extern "C" __global__ void max_pool2d_vjp(
    const real* __restrict__ gradient,  // (planes, out_height, out_width)
    const int* __restrict__ indices,    // (planes, out_height, out_width): as max_pool2d_forward left them
    real* __restrict__ input_gradient,  // (planes, in_height, in_width) output only
    size_type planes, size_type in_height, size_type in_width, size_type out_height,
    size_type out_width, size_type kernel_height, size_type kernel_width, size_type stride_y,
    size_type stride_x, size_type padding_y, size_type padding_x)
{
    GRID_STRIDE(item, planes * in_height * in_width) {
        const size_type column = item % in_width, row = item / in_width % in_height;
        const size_type plane = item / (in_width * in_height) * (out_height * out_width);
        real sum = real(0);
        for (size_type i = kernel_height - 1; i >= 0; --i) {
            const size_type down = row + padding_y - i, y = down / stride_y;
            if (down < 0 || down % stride_y != 0 || y >= out_height) continue;
            for (size_type j = kernel_width - 1; j >= 0; --j) {
                const size_type across = column + padding_x - j, x = across / stride_x;
                if (across < 0 || across % stride_x != 0 || x >= out_width) continue;
                const size_type window = plane + y * out_width + x;
                if (indices[window] == (int)(row * in_width + column)) sum += gradient[window];
            }
        }
        input_gradient[item] = sum;
    }
}

// ---- max_pool2d_fill ----

// Values of max-pooling's transposed Jacobian: 1 where the entry's input is the maximum of the entry's
// window, else 0. Transposes from the layers' layout to batch innermost.
extern "C" __global__ void max_pool2d_fill(
    const int* __restrict__ indices,        // (batch, windows): each window's maximum: its position in its
                                            // input plane
    const index_t* __restrict__ window,     // (entries): the window (column) of each entry
    const index_t* __restrict__ candidate,  // (entries): the input position of each entry inside its plane
    real* __restrict__ values,              // (entries, batch) output only
    size_type windows, size_type entries, size_type batch)
{
    GRID_STRIDE(item, entries * batch) {
        const size_type entry = item / batch, sample = item % batch;
        const bool hit = indices[sample * windows + window[entry]] == (int)candidate[entry];
        values[item] = hit ? real(1) : real(0);
    }
}

// ---- avg_pool2d_forward ----

#include "avg_pool2d.cuh"

// Two-dimensional average pooling, one thread an output: the window's sum over its divisor.
extern "C" __global__ void avg_pool2d_forward(
    const real* __restrict__ input,  // (planes, in_height, in_width)
    real* __restrict__ output,       // (planes, out_height, out_width) output only
    size_type planes, size_type in_height, size_type in_width, size_type out_height,
    size_type out_width, size_type kernel_height, size_type kernel_width, size_type stride_y,
    size_type stride_x, size_type padding_y, size_type padding_x, size_type count_include_pad)
{
    GRID_STRIDE(item, planes * out_height * out_width) {
        const size_type column = item % out_width, row = item / out_width % out_height;
        const real* plane = input + item / (out_width * out_height) * in_height * in_width;
        real sum = real(0);
        for (size_type i = 0; i < kernel_height; ++i) {
            const size_type y = row * stride_y + i - padding_y;
            if (y < 0 || y >= in_height) continue;
            for (size_type j = 0; j < kernel_width; ++j) {
                const size_type x = column * stride_x + j - padding_x;
                if (x >= 0 && x < in_width) sum += plane[y * in_width + x];
            }
        }
        const size_type down = window_extent(row, stride_y, padding_y, kernel_height, in_height, count_include_pad);
        const size_type across = window_extent(column, stride_x, padding_x, kernel_width, in_width, count_include_pad);
        output[item] = sum / real(down * across);
    }
}

// ---- avg_pool2d_vjp ----

#include "avg_pool2d.cuh"

// The gradient of two-dimensional average pooling by its input, one thread an input: the sum over
// the windows that hold it, in the order of the outputs, each over its divisor.
extern "C" __global__ void avg_pool2d_vjp(
    const real* __restrict__ gradient,  // (planes, out_height, out_width)
    real* __restrict__ input_gradient,  // (planes, in_height, in_width) output only
    size_type planes, size_type in_height, size_type in_width, size_type out_height,
    size_type out_width, size_type kernel_height, size_type kernel_width, size_type stride_y,
    size_type stride_x, size_type padding_y, size_type padding_x, size_type count_include_pad)
{
    GRID_STRIDE(item, planes * in_height * in_width) {
        const size_type column = item % in_width, row = item / in_width % in_height;
        const real* plane = gradient + item / (in_width * in_height) * out_height * out_width;
        real sum = real(0);
        for (size_type i = kernel_height - 1; i >= 0; --i) {
            const size_type below = row + padding_y - i, y = below / stride_y;
            if (below < 0 || below % stride_y != 0 || y >= out_height) continue;
            const size_type down = window_extent(y, stride_y, padding_y, kernel_height, in_height, count_include_pad);
            for (size_type j = kernel_width - 1; j >= 0; --j) {
                const size_type right = column + padding_x - j, x = right / stride_x;
                if (right < 0 || right % stride_x != 0 || x >= out_width) continue;
                const size_type across =
                    window_extent(x, stride_x, padding_x, kernel_width, in_width, count_include_pad);
                sum += plane[y * out_width + x] / real(down * across);
            }
        }
        input_gradient[item] = sum;
    }
}

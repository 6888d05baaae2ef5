// Two-dimensional pooling: maximum and average.

#include "prelude.cuh"
#include "pool2d.cuh"

// ---- max_pool2d_forward ----

// Two-dimensional max-pooling. The first of equal maxima wins, a NaN wins over
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
    const Axis down(in_height, out_height, kernel_height, stride_y, padding_y);
    const Axis across(in_width, out_width, kernel_width, stride_x, padding_x);
    if (are_squares(down, across, input)) {
        for_each_element(planes, out_height, out_width, [&](size_type plane, int row, int column, size_type item) {
            const Pair* const pairs = (const Pair*)input + 2 * (plane * out_height + row) * out_width + column;
            const Pair upper = pairs[0], lower = pairs[out_width];
            const int place = 2 * (row * across.inputs + column);
            real best = upper.left;
            int position = place;
            const auto compare = [&](real value, int at) {
                if (value > best || value != value) best = value, position = at;
            };
            compare(upper.right, place + 1);
            compare(lower.left, place + across.inputs);
            compare(lower.right, place + across.inputs + 1);
            output[item] = best;
            indices[item] = position;
        });
        return;
    }
    for_each_element(planes, out_height, out_width, [&](size_type plane, int row, int column, size_type item) {
        const real* const pixels = input + plane * in_height * in_width;
        const int top = down.begin_of(row), left = across.begin_of(column);
        const int bottom = min(top + down.kernel, down.inputs), right = min(left + across.kernel, across.inputs);
        real best = real(-INFINITY);
        int position = -1;
#pragma unroll 1
        for (int y = max(top, 0); y < bottom; ++y)
#pragma unroll 2
            for (int x = max(left, 0); x < right; ++x) {
                const real value = pixels[y * across.inputs + x];
                if (value > best || value != value || position < 0) {
                    best = value;
                    position = y * across.inputs + x;
                }
            }
        output[item] = best;
        indices[item] = position;
    });
}

// ---- max_pool2d_vjp ----

// The gradient of two-dimensional max-pooling by its input: the sum over the windows that hold an input and whose
// maximum it is, in the order of the outputs.
extern "C" __global__ void max_pool2d_vjp(
    const real* __restrict__ gradient,  // (planes, out_height, out_width)
    const int* __restrict__ indices,    // (planes, out_height, out_width): as max_pool2d_forward left them
    real* __restrict__ input_gradient,  // (planes, in_height, in_width) output only
    size_type planes, size_type in_height, size_type in_width, size_type out_height,
    size_type out_width, size_type kernel_height, size_type kernel_width, size_type stride_y,
    size_type stride_x, size_type padding_y, size_type padding_x)
{
    const Axis down(in_height, out_height, kernel_height, stride_y, padding_y);
    const Axis across(in_width, out_width, kernel_width, stride_x, padding_x);
    if (are_squares(down, across, input_gradient)) {
        for_each_element(planes, out_height, out_width, [&](size_type plane, int row, int column, size_type item) {
            Pair* const pairs = (Pair*)input_gradient + 2 * (plane * out_height + row) * out_width + column;
            const real value = gradient[item];
            const int from = indices[item] - 2 * (row * across.inputs + column), below = across.inputs;
            pairs[0] = {from == 0 ? value : real(0), from == 1 ? value : real(0)};
            pairs[out_width] = {from == below ? value : real(0), from == below + 1 ? value : real(0)};
        });
        return;
    }
    for_each_element(planes, in_height, in_width, [&](size_type plane, int row, int column, size_type item) {
        const size_type windows = plane * out_height * out_width;
        int top, bottom, left, right;
        down.find_windows(row, top, bottom);
        across.find_windows(column, left, right);
        real sum = real(0);
#pragma unroll 1
        for (int y = top; y < bottom; ++y)
#pragma unroll 1
            for (int x = left; x < right; ++x) {
                const size_type window = windows + y * across.outputs + x;
                if (indices[window] == row * across.inputs + column) sum += gradient[window];
            }
        input_gradient[item] = sum;
    });
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

// Two-dimensional average pooling, one thread an output: the window's sum over its divisor.
extern "C" __global__ void avg_pool2d_forward(
    const real* __restrict__ input,  // (planes, in_height, in_width)
    real* __restrict__ output,       // (planes, out_height, out_width) output only
    size_type planes, size_type in_height, size_type in_width, size_type out_height,
    size_type out_width, size_type kernel_height, size_type kernel_width, size_type stride_y,
    size_type stride_x, size_type padding_y, size_type padding_x, size_type count_include_pad)
{
    const Axis down(in_height, out_height, kernel_height, stride_y, padding_y);
    const Axis across(in_width, out_width, kernel_width, stride_x, padding_x);
    for_each_element(planes, out_height, out_width, [&](size_type plane, int row, int column, size_type item) {
        const real* const pixels = input + plane * in_height * in_width;
        const int top = down.begin_of(row), left = across.begin_of(column);
        const int bottom = min(top + down.kernel, down.inputs), right = min(left + across.kernel, across.inputs);
        real sum = real(0);
        for (int y = max(top, 0); y < bottom; ++y)
            for (int x = max(left, 0); x < right; ++x) sum += pixels[y * across.inputs + x];
        output[item] = sum / real(down.count_in(row, count_include_pad) * across.count_in(column, count_include_pad));
    });
}

// ---- avg_pool2d_vjp ----

// The gradient of two-dimensional average pooling by its input, one thread an input: the sum over
// the windows that hold it, in the order of the outputs, each over its divisor.
extern "C" __global__ void avg_pool2d_vjp(
    const real* __restrict__ gradient,  // (planes, out_height, out_width)
    real* __restrict__ input_gradient,  // (planes, in_height, in_width) output only
    size_type planes, size_type in_height, size_type in_width, size_type out_height,
    size_type out_width, size_type kernel_height, size_type kernel_width, size_type stride_y,
    size_type stride_x, size_type padding_y, size_type padding_x, size_type count_include_pad)
{
    const Axis down(in_height, out_height, kernel_height, stride_y, padding_y);
    const Axis across(in_width, out_width, kernel_width, stride_x, padding_x);
    for_each_element(planes, in_height, in_width, [&](size_type plane, int row, int column, size_type item) {
        const real* const windows = gradient + plane * out_height * out_width;
        int top, bottom, left, right;
        down.find_windows(row, top, bottom);
        across.find_windows(column, left, right);
        real sum = real(0);
#pragma unroll 1
        for (int y = top; y < bottom; ++y) {
            const int rows = down.count_in(y, count_include_pad);
#pragma unroll 1
            for (int x = left; x < right; ++x)
                sum += windows[y * across.outputs + x] / real(rows * across.count_in(x, count_include_pad));
        }
        input_gradient[item] = sum;
    });
}

// Values of max-pooling's transposed Jacobian: 1 where the entry's input is the maximum of the entry's
// window, else 0. Transposes from the layers' layout to batch innermost.
//
//   indices    (batch, windows)   input, each window's maximum: its position in its input plane
//   window     (entries)          input, the window (column) of each entry
//   candidate  (entries)          input, the input position of each entry inside its plane
//   values     (entries, batch)   output only

#include "prelude.cuh"

extern "C" __global__ void max_pool2d_fill(
    const int* __restrict__ indices, const index_t* __restrict__ window,
    const index_t* __restrict__ candidate, real* __restrict__ values, size_type windows,
    size_type entries, size_type batch)
{
    GRID_STRIDE(item, entries * batch) {
        const size_type entry = item / batch, sample = item % batch;
        const bool hit = indices[sample * windows + window[entry]] == (int)candidate[entry];
        values[item] = hit ? real(1) : real(0);
    }
}

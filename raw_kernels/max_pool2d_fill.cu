// Values of max-pooling's transposed Jacobian: 1 where the entry's input is the maximum of the entry's
// window, else 0. Transposes from the layers' layout to batch innermost.

#include "prelude.cuh"

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

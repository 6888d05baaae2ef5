// The logistic function s, and its slope at every element: s (1 - s). 1 - s is s of -x, which does not cancel.

#include "prelude.cuh"
#include "activations.cuh"

extern "C" __global__ void sigmoid_forward(
    const real* __restrict__ input,  // (size)
    real* __restrict__ output,       // (size) output only
    real* __restrict__ slope,        // (size) output only
    size_type size)
{
    GRID_STRIDE(i, size) {
        const real x = input[i], s = sigmoid_of(x);
        output[i] = s;
        slope[i] = s * sigmoid_of(-x);
    }
}

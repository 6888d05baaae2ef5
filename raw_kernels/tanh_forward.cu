// tanh, and its slope at every element: (1 - y) (1 + y) of the output y.

#include "prelude.cuh"
#include "activations.cuh"

extern "C" __global__ void tanh_forward(
    const real* __restrict__ input,  // (size)
    real* __restrict__ output,       // (size) output only
    real* __restrict__ slope,        // (size) output only
    size_type size)
{
    GRID_STRIDE(i, size) {
        const real y = tanh_of(input[i]);
        output[i] = y;
        slope[i] = (real(1) - y) * (real(1) + y);
    }
}

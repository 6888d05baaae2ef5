// ReLU: max(x, 0), and NaN for NaN.

#include "prelude.cuh"

extern "C" __global__ void relu_forward(
    const real* __restrict__ input,  // (size)
    real* __restrict__ output,       // (size) output only
    size_type size)
{
    GRID_STRIDE(i, size) {
        const real value = input[i];
        output[i] = value <= real(0) ? real(0) : value;
    }
}

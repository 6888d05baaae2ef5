// ReLU: max(x, 0), and NaN for NaN.
//
//   input   (size)  input
//   output  (size)  output only

#include "prelude.cuh"

extern "C" __global__ void relu_forward(
    const real* __restrict__ input, real* __restrict__ output, size_type size)
{
    GRID_STRIDE(i, size) {
        const real value = input[i];
        output[i] = value <= real(0) ? real(0) : value;
    }
}

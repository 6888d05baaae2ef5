// The gradient of ReLU by its input: the gradient by the output where that is not zero, else 0.

#include "prelude.cuh"

extern "C" __global__ void relu_vjp(
    const real* __restrict__ output,    // (size): ReLU's output
    const real* __restrict__ gradient,  // (size)
    real* __restrict__ input_gradient,  // (size) output only
    size_type size)
{
    GRID_STRIDE(i, size) input_gradient[i] = output[i] <= real(0) ? real(0) : gradient[i];
}

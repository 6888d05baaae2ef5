// ELU (Clevert et al. 2016), and its slope at every element: x > 0 ? x : alpha (e^x - 1).

#include "prelude.cuh"

extern "C" __global__ void elu_forward(
    const real* __restrict__ input,  // (size)
    real* __restrict__ output,       // (size) output only
    real* __restrict__ slope,        // (size) output only
    size_type size, real alpha)
{
    GRID_STRIDE(i, size) {
        const real x = input[i];
        output[i] = x > real(0) ? x : alpha * expm1(x);
        slope[i] = x > real(0) ? real(1) : alpha * exp(x);
    }
}

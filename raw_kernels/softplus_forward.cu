// Softplus, log(1 + e^z) / beta of z = beta x, and x where z is above the threshold; and its slope at every
// element: the logistic function of z, and 1 there. max(z, 0) + log(1 + e^-|z|) neither overflows nor cancels.

#include "prelude.cuh"
#include "activations.cuh"

extern "C" __global__ void softplus_forward(
    const real* __restrict__ input,  // (size)
    real* __restrict__ output,       // (size) output only
    real* __restrict__ slope,        // (size) output only
    size_type size, real beta, real threshold)
{
    GRID_STRIDE(i, size) {
        const real x = input[i], z = beta * x;
        const real rest = log1p(exp_of(z < real(0) ? z : -z));
        output[i] = z > threshold ? x : (z < real(0) ? rest : z + rest) / beta;
        slope[i] = z > threshold ? real(1) : sigmoid_of(z);
    }
}

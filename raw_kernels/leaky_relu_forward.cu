// Leaky ReLU (Maas et al. 2013), and its slope at every element: x > 0 ? x : negative_slope x.

#include "prelude.cuh"

extern "C" __global__ void leaky_relu_forward(
    const real* __restrict__ input,  // (size)
    real* __restrict__ output,       // (size) output only
    real* __restrict__ slope,        // (size) output only
    size_type size, real negative_slope)
{
    GRID_STRIDE(i, size) {
        const real x = input[i];
        const real rises = x > real(0) ? real(1) : negative_slope;
        output[i] = rises * x;
        slope[i] = rises;
    }
}

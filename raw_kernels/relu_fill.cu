// Values of ReLU's transposed Jacobian, a whole diagonal (paper, algorithm 7): 0 where the output is 0, else 1.
// Transposes from the layers' layout to batch innermost.

#include "prelude.cuh"

extern "C" __global__ void relu_fill(
    const real* __restrict__ output,  // (batch, features): the layer's output
    real* __restrict__ values,        // (features, batch) output only
    size_type features, size_type batch)
{
    GRID_STRIDE(item, features * batch) {
        const real y = output[item % batch * features + item / batch];
        values[item] = y <= real(0) ? real(0) : real(1);
    }
}

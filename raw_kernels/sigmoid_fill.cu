// Values of the logistic function's transposed Jacobian, a whole diagonal: y (1 - y).
// Transposes from the layers' layout to batch innermost.

#include "prelude.cuh"

extern "C" __global__ void sigmoid_fill(
    const real* __restrict__ output,  // (batch, features): the layer's output
    real* __restrict__ values,        // (features, batch) output only
    size_type features, size_type batch)
{
    GRID_STRIDE(item, features * batch) {
        const real y = output[item % batch * features + item / batch];
        values[item] = y * (real(1) - y);
    }
}

// Values of tanh's transposed Jacobian, a whole diagonal: (1 - y)(1 + y).
// Transposes from the layers' layout to batch innermost.

#include "prelude.cuh"

extern "C" __global__ void tanh_fill(
    const real* __restrict__ output,  // (batch, features): the layer's output
    real* __restrict__ values,        // (features, batch) output only
    size_type features, size_type batch)
{
    GRID_STRIDE(item, features * batch) {
        const real y = output[item % batch * features + item / batch];
        values[item] = (real(1) - y) * (real(1) + y);
    }
}

#include "prelude.cuh"

// Values of ReLU's transposed Jacobian, a whole diagonal (paper, algorithm 7): 1 where the
// output is positive, else 0. Transposes from the layers' layout to batch innermost.
//
//   output  (batch, features)   input, the layer's output
//   values  (features, batch)   output only

extern "C" __global__ void relu_fill(
    const real* __restrict__ output, real* __restrict__ values, size_type features, size_type batch)
{
    GRID_STRIDE(item, features * batch) {
        size_type feature = item / batch, sample = item % batch;
        values[item] = output[sample * features + feature] > real(0) ? real(1) : real(0);
    }
}

// Values of dropout's transposed Jacobian, a whole diagonal: `scale` where the element was kept, else 0.
// Transposes from the layers' layout to batch innermost.

#include "prelude.cuh"

extern "C" __global__ void dropout_fill(
    const unsigned char* __restrict__ kept,  // (batch, features): 1 or 0
    real* __restrict__ values,               // (features, batch) output only
    size_type features, size_type batch, real scale)
{
    GRID_STRIDE(item, features * batch) {
        values[item] = kept[item % batch * features + item / batch] ? scale : real(0);
    }
}

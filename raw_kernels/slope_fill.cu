// Values of an activation's transposed Jacobian, a whole diagonal: the slopes that its forward pass kept.
// Transposes from the layers' layout to batch innermost.

#include "prelude.cuh"

extern "C" __global__ void slope_fill(
    const real* __restrict__ slope,  // (batch, features)
    real* __restrict__ values,       // (features, batch) output only
    size_type features, size_type batch)
{
    GRID_STRIDE(item, features * batch) values[item] = slope[item % batch * features + item / batch];
}

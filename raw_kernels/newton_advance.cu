// The states that are assumed before chunks: the end of the chunk before, and what Newton's step makes of
// earlier chunks' corrections, where that is finite. That before the first chunk stays.

#include "prelude.cuh"

extern "C" __global__ void newton_advance(
    const real* __restrict__ ends,      // (chunks * batch | rows): the state behind each chunk
    const real* __restrict__ mismatch,  // (chunks, batch | rows)
    const real* __restrict__ step,      // (chunks, batch | rows)
    real* __restrict__ starts,          // (chunks * batch | rows) input and output
    size_type chunks, size_type rows, size_type batch)
{
    GRID_STRIDE(item, (chunks - 1) * batch * rows) {
        const real carried = step[item] - mismatch[item];
        starts[item + batch * rows] = ends[item] + (carried - carried == real(0) ? carried : real(0));
    }
}

// The states that are assumed before chunks: the end of the chunk before, and what Newton's step makes of
// earlier chunks' corrections, where that is finite. That before the first chunk stays.

#include "prelude.cuh"

extern "C" __global__ void newton_advance(
    const real* __restrict__ ends,      // (rows, chunks, batch): the state behind each chunk
    const real* __restrict__ mismatch,  // (chunks, rows, batch)
    const real* __restrict__ step,      // (chunks, rows, batch)
    real* __restrict__ starts,          // (rows, chunks, batch) input and output
    size_type chunks, size_type rows, size_type batch)
{
    GRID_STRIDE(item, (chunks - 1) * rows * batch) {
        const size_type chunk = item / (rows * batch), row = item / batch % rows, lane = item % batch;
        const size_type place = (row * chunks + chunk) * batch + lane;
        const real carried = step[item] - mismatch[item];
        starts[place + batch] = ends[place] + (carried - carried == real(0) ? carried : real(0));
    }
}

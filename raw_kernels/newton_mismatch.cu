// By how much the end of each chunk of a walk misses the state that was assumed behind it; nothing is assumed
// behind the last one.

#include "prelude.cuh"

extern "C" __global__ void newton_mismatch(
    const real* __restrict__ starts,  // (rows, chunks, batch): the state assumed before each chunk
    const real* __restrict__ ends,    // (rows, chunks, batch): the state behind it
    real* __restrict__ mismatch,      // (chunks, rows, batch) output only
    size_type chunks, size_type rows, size_type batch)
{
    GRID_STRIDE(item, chunks * rows * batch) {
        const size_type chunk = item / (rows * batch), row = item / batch % rows, lane = item % batch;
        const size_type place = (row * chunks + chunk) * batch + lane;
        mismatch[item] = chunk + 1 < chunks ? ends[place] - starts[place + batch] : real(0);
    }
}

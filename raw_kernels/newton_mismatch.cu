// By how much the end of each chunk of a walk misses the state that was assumed behind it; nothing is assumed
// behind the last one.

#include "prelude.cuh"

extern "C" __global__ void newton_mismatch(
    const real* __restrict__ starts,  // (chunks * batch | rows): the state assumed before each chunk
    const real* __restrict__ ends,    // (chunks * batch | rows): the state behind it
    real* __restrict__ mismatch,      // (chunks, batch | rows) output only
    size_type chunks, size_type rows, size_type batch)
{
    const size_type plane = batch * rows;
    GRID_STRIDE(item, chunks * plane)
        mismatch[item] = item + plane < chunks * plane ? ends[item] - starts[item + plane] : real(0);
}

// Values by index.

#include "prelude.cuh"

// ---- gather_fill ----

// Values of a transposed Jacobian that is made of weights alone (convolution, linear): the weight
// each entry of the pattern shows (paper, algorithm 4, with the corner cases already in the map).
extern "C" __global__ void gather_fill(
    const real* __restrict__ source,  // (sources): the flattened weights
    const index_t* __restrict__ map,  // (entries): position in source of each entry
    real* __restrict__ values,        // (entries) output only
    size_type sources, size_type entries)
{
    GRID_STRIDE(entry, entries) values[entry] = source[map[entry]];
}

// Values of a transposed Jacobian that is made of weights alone (convolution, linear): the weight
// each entry of the pattern shows (paper, algorithm 4, with the corner cases already in the map).
//
//   source  (sources)   input, the flattened weights
//   map     (entries)   input, position in source of each entry
//   values  (entries)   output only

#include "prelude.cuh"

extern "C" __global__ void gather_fill(
    const real* __restrict__ source, const index_t* __restrict__ map, real* __restrict__ values,
    size_type sources, size_type entries)
{
    GRID_STRIDE(entry, entries) values[entry] = source[map[entry]];
}

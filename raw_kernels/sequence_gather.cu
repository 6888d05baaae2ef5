// Sequences from a layer's layout to that of the scans over time. What lies behind a
// sample's end is 0, whatever it was.

#include "prelude.cuh"

extern "C" __global__ void sequence_gather(
    const real* __restrict__ outside,       // (batch, steps, total)
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ inside,              // (steps, batch | features) output only, features from `offset`
                                            // on
    size_type steps, size_type features, size_type batch, size_type total, size_type offset)
{
    GRID_STRIDE(item, steps * features * batch) {
        const size_type f = item % features, b = item / features % batch, t = item / features / batch;
        const size_type place = b * steps + t;
        inside[item] = t < lengths[b] ? outside[place * total + offset + f] : real(0);
    }
}

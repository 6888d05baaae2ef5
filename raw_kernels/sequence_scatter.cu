// Sequences from the layout of the scans over time to a layer's. What lies behind a sample's end is 0.

#include "prelude.cuh"

extern "C" __global__ void sequence_scatter(
    const real* __restrict__ inside,        // (steps, batch | rows): its first `features` rows
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ outside,             // (batch, steps, total) input and output, features from
                                            // `offset` on are written
    size_type steps, size_type rows, size_type features, size_type batch, size_type total,
    size_type offset)
{
    GRID_STRIDE(item, steps * features * batch) {
        const size_type f = item % features, b = item / features % batch, t = item / features / batch;
        const size_type place = b * steps + t;
        outside[place * total + offset + f] =
            t < lengths[b] ? inside[(t * batch + b) * rows + f] : real(0);
    }
}

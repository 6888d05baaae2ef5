// Back through each chunk of one direction of a layer of recurrent cells, from the gradient by the states at
// its end: the cell's gradients by x, u, parameters and former states, and by h what W_hh hands on of u's.
// Gradients by each step's output come in on the way where `per_step`. A step with t >= lengths[b] hands sample
// b's gradient on as it is, and its own counts for nothing.
// Where `guarded` and what is `wanted` is 0, nothing is written.

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"
#include "frames/cuda/chunks.cuh"
#include "frames/cuda/walk.cuh"

#if CLUSTER > 1
#include "frames/cuda/clusters.cuh"
#include "frames/cuda/backward_clusters.cuh"
#else
#include "frames/cuda/registers.cuh"
#include "frames/cuda/backward_registers.cuh"
#endif

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(BLOCK, 1) CELL_backward(
    const real* __restrict__ state,         // (steps, batch | STATES, hidden): of CELL_forward
    const real* __restrict__ gates,         // (steps, batch | SAVED, hidden): of CELL_forward
    const real* __restrict__ initial,       // (batch | STATES, hidden): before step 0
    const real* __restrict__ weight_hh,     // (RECURRENT * hidden, hidden)
    const real* __restrict__ unit,          // (PARAMETERS * hidden): of each unit
    const real* __restrict__ gradient,      // (steps, batch | hidden) if per_step else (0): by each step's
                                            // output
    const real* __restrict__ boundary,      // ((steps + chunk - 1) // chunk, batch | STATES, hidden): by the
                                            // states at each chunk's end, from later steps; chunks are of
                                            // steps, not times
    const long long* __restrict__ lengths,  // (batch)
    const int* __restrict__ wanted,         // (1) if guarded else (0)
    real* __restrict__ delta,               // (steps, batch | DELTAS, hidden) output only, by time: by x; by
                                            // u where it differs from x's; by the parameters
    real* __restrict__ entering,            // ((steps + chunk - 1) // chunk, batch | STATES, hidden) output
                                            // only, by the states before each chunk
    size_type steps, size_type hidden, size_type batch, size_type chunk,
    int per_step, int reverse, int guarded)
{
    if (guarded && !*wanted) return;
    const Chunks chunks = {lengths, steps, batch, chunk, 0, reverse};
    walk_back(state, gates, initial, weight_hh, unit, gradient, boundary, delta, entering, int(hidden), chunks,
              per_step);
}

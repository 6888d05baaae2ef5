// One direction of a layer of recurrent cells: all states, and what is kept of each step for the way back.
// u = W_hh h + b_hh, and the cell's step from x = projected and u to the new states. Step s is time t = s, or
// steps - 1 - s where `reverse`. A step with t >= lengths[b] leaves sample b's states; what it keeps is 0. Each
// set of weights has a walk a sample.

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"
#include "frames/cuda/walk.cuh"

// Samples that a block walks together where no registers hold weights, and walks from which on it does.
const int WALKS_TOGETHER = TOGETHER, MANY_WALKS = MANY;

#if !RECURRENT
#include "frames/cuda/elements_forward.cuh"
#elif CLUSTER > 1
#include "frames/cuda/clusters.cuh"
#include "frames/cuda/forward_clusters.cuh"
#elif UNITS
#include "frames/cuda/registers.cuh"
#include "frames/cuda/forward_registers.cuh"
#else
#include "frames/cuda/memory.cuh"
#include "frames/cuda/forward_memory.cuh"
#endif

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(BLOCK, 1) CELL_forward(
    const real* __restrict__ projected,     // (steps, batch | GATES, sets, hidden): W_ih x + b_ih
    const real* __restrict__ weight_hh,     // (sets, RECURRENT * hidden, hidden)
    const real* __restrict__ bias_hh,       // (sets, RECURRENT * hidden)
    const real* __restrict__ unit,          // (sets, PARAMETERS * hidden): of each unit
    const real* __restrict__ initial,       // (batch | STATES, sets, hidden): before step 0
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ state,               // (steps, batch | STATES, sets, hidden) output only, by time
    real* __restrict__ gates,               // (steps, batch | KEPT, sets, hidden) output only, by time
    real* __restrict__ final,               // (batch | STATES, sets, hidden) output only, after the last step
    size_type steps, size_type hidden, size_type sets, size_type batch, size_type walks, int reverse)
{
    walk(projected, weight_hh, bias_hh, unit, initial, lengths, state, gates, final, int(steps), int(hidden),
         sets, batch, walks, reverse);
}

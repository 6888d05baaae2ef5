// One direction of a layer of recurrent cells: all states, and what is saved of each step for the way back.
// u = W_hh h + b_hh, and the cell's step from x = projected and u to the new states. Step s is time t = s, or
// steps - 1 - s where `reverse`. A step with t >= lengths[b] leaves sample b's states; what it keeps is 0.

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"
#include "frames/cuda/walk.cuh"

#if CLUSTER > 1
#include "frames/cuda/clusters.cuh"
#include "frames/cuda/forward_clusters.cuh"
#else
#include "frames/cuda/registers.cuh"
#include "frames/cuda/forward_registers.cuh"
#endif

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(BLOCK, 1) CELL_forward(
    const real* __restrict__ projected,     // (steps, batch | GATES, hidden): W_ih x + b_ih
    const real* __restrict__ weight_hh,     // (RECURRENT * hidden, hidden)
    const real* __restrict__ bias_hh,       // (RECURRENT * hidden)
    const real* __restrict__ unit,          // (PARAMETERS * hidden): of each unit
    const real* __restrict__ initial,       // (batch | STATES, hidden): before step 0
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ state,               // (steps, batch | STATES, hidden) output only, by time
    real* __restrict__ gates,               // (steps, batch | SAVED, hidden) output only, by time
    real* __restrict__ final,               // (batch | STATES, hidden) output only, after the last step
    size_type steps, size_type hidden, size_type batch, int reverse)
{
    walk(projected, weight_hh, bias_hh, unit, initial, lengths, state, gates, final, int(steps), int(hidden),
         batch, reverse);
}

// One step forward of all walks of a layer of recurrent cells: u = W_hh h + b_hh, and the cell's step from x =
// projected and u to the new states. Where time >= lengths[b], sample b's states stay, and what is saved is 0. Blocks
// share out the units: a step waits for all of the one before, so each is a launch.

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"
#include "frames/cuda/walk.cuh"

// Of a warp: units, rows of weights a unit, and samples; of a block: groups of units, tiles of samples, bytes of what
// weights are multiplied with at a time, and parts of each sum.
const int UNITS = WARP_UNITS, ROWS_OF_UNIT = R, SAMPLES = WARP_SAMPLES, GROUPS = BLOCK_GROUPS, TILES = BLOCK_TILES,
          STAGED_BYTES = STAGED, PARTS = 1;
#include "frames/cuda/step.cuh"

// Blocks of a multiprocessor, where registers suffice: one computes while another waits.
const int BLOCKS_AT_ONCE = sizeof(real) == 4 ? 2 : 1;

extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS_AT_ONCE) CELL_forward_step(
    const real* __restrict__ projected,     // (batch | GATES, hidden): W_ih x + b_ih of the step
    const real* __restrict__ weight_hh,     // (RECURRENT * hidden, hidden)
    const real* __restrict__ bias_hh,       // (RECURRENT * hidden)
    const real* __restrict__ unit,          // (PARAMETERS * hidden): of each unit
    const real* __restrict__ before,        // (batch | STATES, hidden): before the step
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ state,               // (batch | STATES, hidden) output only, after it
    real* __restrict__ gates,               // (batch | SAVED, hidden) output only
    size_type time, size_type hidden, size_type batch)
{
    __shared__ Shared shared;
    for (size_type number = blockIdx.x; number < part_count(int(hidden), batch); number += gridDim.x) {
        const Part part(number, int(hidden), batch);
        const Own own(part);
        const size_type o = own.element(part, P), row = part.unit + own.unit;
        real x[G], u[R], p[Q_EXTENT], earlier[P], after[P], saved[K_EXTENT] = {};
        bool moves = false;
        if (own.takes) {
#pragma unroll
            for (int i = 0; i < P; ++i) after[i] = earlier[i] = before[i * hidden + o];
            moves = time < lengths[part.sample + own.sample];
#pragma unroll
            for (int g = 0; g < G; ++g) x[g] = projected[own.element(part, G) + g * hidden];
#pragma unroll
            for (int g = 0; g < R; ++g) u[g] = bias_hh[row + g * hidden];
            load_unit(unit + part.unit + own.unit, int(hidden), p);
        }
        add_up(
            part, shared,
            [&](int j, int g, int) { return weight_hh + (g * hidden + j) * hidden; },
            [&](int) { return before + part.start(P, 0); }, P * hidden);
        if (!own.takes) continue;
        if (moves) {
#pragma unroll
            for (int g = 0; g < R; ++g) u[g] += own.sum(shared, g);
            Cell::forward(x, u, earlier, p, after, saved);
        }
#pragma unroll
        for (int i = 0; i < P; ++i) state[i * hidden + o] = after[i];
#pragma unroll
        for (int k = 0; k < K; ++k) gates[own.element(part, K) + k * hidden] = saved[k];
    }
}

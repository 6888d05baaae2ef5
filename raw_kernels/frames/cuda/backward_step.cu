// One step back of all walks of a layer of recurrent cells: the gradient by the states after the step is `carried`, what
// W_hh hands on of the step behind (by `later`, its delta), and the gradient by the step's output where `per_step`;
// then the cell's gradients. Where time >= lengths[b], sample b's gradient is handed on as it is, and its own counts
// for nothing. Blocks share out the units: a step waits for all of the one behind, so each is a launch.

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"
#include "frames/cuda/walk.cuh"

// Of a warp: units, rows of weights a unit, and samples; of a block: groups of units, tiles of samples, bytes of what
// weights are multiplied with at a time, and parts of each sum, which are its recurrent gates.
const int UNITS = WARP_UNITS, ROWS_OF_UNIT = 1, SAMPLES = WARP_SAMPLES, GROUPS = BLOCK_GROUPS, TILES = BLOCK_TILES,
          STAGED_BYTES = STAGED, PARTS = R;
#include "frames/cuda/step.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, 1) CELL_backward_step(
    const real* __restrict__ state,         // (batch | STATES, hidden): after the step
    const real* __restrict__ gates,         // (batch | SAVED, hidden): of CELL_forward_step
    const real* __restrict__ before,        // (batch | STATES, hidden): before the step
    const real* __restrict__ weight,        // (hidden, RECURRENT * hidden): W_hh transposed
    const real* __restrict__ unit,          // (PARAMETERS * hidden): of each unit
    const real* __restrict__ gradient,      // (batch | hidden) if per_step else (0): by the step's output
    const real* __restrict__ later,         // (batch | DELTAS, hidden): delta of the step behind, or zeros
    const real* __restrict__ carried,       // (batch | STATES, hidden): by the states after the step, but for
                                            // what W_hh hands on of `later`
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ delta,               // (batch | DELTAS, hidden) output only: by x; by u where it differs
                                            // from x's; by the parameters
    real* __restrict__ entering,            // (batch | STATES, hidden) output only: by the states before the
                                            // step, but for what W_hh hands on of `delta`
    size_type time, size_type hidden, size_type batch, int per_step)
{
    __shared__ Shared shared;
    for (size_type number = blockIdx.x; number < part_count(int(hidden), batch); number += gridDim.x) {
        const Part part(number, int(hidden), batch);
        const Own own(part);
        const size_type o = own.element(part, P);
        real saved[K_EXTENT], after[P], earlier[P], g[P], p[Q_EXTENT], by_output = real(0);
        real by_x[G] = {}, by_u[U_EXTENT] = {}, by_before[P], by_p[Q_EXTENT] = {};
        bool moves = false;
        if (own.takes) {
            moves = time < lengths[part.sample + own.sample];
#pragma unroll
            for (int i = 0; i < P; ++i) {
                g[i] = carried[i * hidden + o];
                earlier[i] = Cell::reads_before >> i & 1 ? before[i * hidden + o] : real(0);
                after[i] = Cell::reads_after >> i & 1 ? state[i * hidden + o] : real(0);
            }
#pragma unroll
            for (int k = 0; k < K; ++k) saved[k] = gates[own.element(part, K) + k * hidden];
            if (per_step) by_output = gradient[own.element(part, 1)];
            load_unit(unit + part.unit + own.unit, int(hidden), p);
        }
        add_up(
            part, shared,
            [&](int j, int, int sum) { return weight + j * (R * hidden) + sum * hidden; },
            [&](int sum) { return later + part.start(D, recurrent_row(sum)); }, D * hidden);
        if (!own.takes) continue;
        g[0] += own.sum(shared, 0);
#pragma unroll
        for (int i = 0; i < P; ++i) by_before[i] = g[i];
        if (moves) {
            g[0] += by_output;
            Cell::backward(g, saved, after, earlier, p, by_x, by_u, by_before, by_p);
        }
#pragma unroll
        for (int i = 0; i < P; ++i) entering[i * hidden + o] = by_before[i];
#pragma unroll
        for (int d = 0; d < D; ++d) delta[own.element(part, D) + d * hidden] = delta_row(by_x, by_u, by_p, d);
    }
}

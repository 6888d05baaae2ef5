// Back through one direction of a wide layer of recurrent cells, as CELL_backward through one chunk, in a cooperative
// launch whose blocks share out the hidden units. A step begins with what W_hh hands on of the delta of the step behind;
// one more step, before the first, does that alone.

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"
#include "frames/cuda/walk.cuh"

const int UNITS = TILE_UNITS, SHARES = TILE_SHARES, THREAD_UNITS = TILE_THREAD_UNITS, SAMPLES = TILE_SAMPLES,
          UNIT_LANES = TILE_UNIT_LANES, SAMPLE_LANES = TILE_SAMPLE_LANES, SAMPLE_WARPS = TILE_SAMPLE_WARPS,
          TERMS = TILE_TERMS, STAGES = TILE_STAGES, SUMS = 1, INPUTS = R;
#include "frames/cuda/grid.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, 1) CELL_backward_grid(
    const real* __restrict__ state,         // (steps, batch | STATES, hidden): of CELL_forward
    const real* __restrict__ gates,         // (steps, batch | SAVED, hidden): of CELL_forward
    const real* __restrict__ initial,       // (batch | STATES, hidden): before step 0
    const real* __restrict__ weight_hh,     // (RECURRENT * hidden, hidden)
    const real* __restrict__ unit,          // (PARAMETERS * hidden): of each unit
    const real* __restrict__ gradient,      // (steps, batch | hidden) if per_step else (0): by each step's
                                            // output
    const real* __restrict__ boundary,      // (batch | STATES, hidden): by the states after the last step
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ delta,               // (steps, batch | DELTAS, hidden) output only, by time: by x; by
                                            // u where it differs from x's; by the parameters
    real* __restrict__ entering,            // (batch | STATES, hidden) output only, by the states before the
                                            // first step
    real* __restrict__ partial,             // (TILE_PARTIALS, batch, hidden) input and output: sums that blocks
                                            // exchange
    long long* __restrict__ arrived,        // (1) input and output: 0
    size_type steps, size_type hidden, size_type batch, int per_step, int reverse)
{
    const int width = int(hidden);
    const Part at(width);
    const size_type plane = hidden * batch;
    const bool whole = hidden % PACK == 0 && in_packs(delta);
    const Memory memory(at);
    load_weights(memory, at, width,
                 [&](int g, int k, int, int j) { return weight_hh[(g * hidden + k) * hidden + j]; });
    const Sums sums = {memory, at, partial, width, batch};
    GridBarrier barrier(arrived);
    for (size_type s = steps; s >= 0; --s) {  // step s - 1 of the walk, after step s
        const size_type step = s - 1, t = reverse ? steps - 1 - step : step, later = reverse ? t - 1 : t + 1;
        const real* const carried = s == steps ? boundary : entering;
        const real* const before = step > 0 ? state + (reverse ? t + 1 : t - 1) * P * plane : initial;
        for (size_type begin = 0; begin < batch; begin += BLOCK_SAMPLES) {
            const int samples = int(min(size_type(BLOCK_SAMPLES), batch - begin));
            real g[PAIRS][P], saved[PAIRS][K_EXTENT], earlier[PAIRS][P] = {}, after[PAIRS][P] = {}, p[PAIRS][Q_EXTENT];
            real by_output[PAIRS] = {};
            bool moves[PAIRS];
            // What a step reads of its own is on its way while the products are added up.
#pragma unroll
            for (int n = 0; n < PAIRS; ++n) {
                const Pair pair(n, at.units, samples);
                if (!pair.is_there) continue;
                const size_type sample = begin + pair.sample, j = at.own + pair.unit;
                moves[n] = s && t < lengths[sample];
#pragma unroll
                for (int i = 0; i < P; ++i) g[n][i] = carried[(sample * P + i) * hidden + j];
                if (!moves[n]) continue;
#pragma unroll
                for (int i = 0; i < P; ++i) {
                    const size_type row = (sample * P + i) * hidden + j;
                    if (Cell::reads_before >> i & 1) earlier[n][i] = before[row];
                    if (Cell::reads_after >> i & 1) after[n][i] = state[t * P * plane + row];
                }
#pragma unroll
                for (int k = 0; k < K; ++k)
                    saved[n][k] = gates[t * K * plane + (sample * K + k) * hidden + j];
                if (per_step) by_output[n] = gradient[t * plane + sample * hidden + j];
                load_unit(unit + j, width, p[n]);
            }
            if (s < steps) {
                const real* const deltas = delta + (later * batch + begin) * D * hidden;
                add_up(memory, at, width, samples,
                       [&](int sum) { return deltas + recurrent_row(sum) * hidden; }, D * hidden, whole);
                sums.hand_on(begin, samples, barrier);
            }
#pragma unroll
            for (int n = 0; n < PAIRS; ++n) {
                const Pair pair(n, at.units, samples);
                if (!pair.is_there) continue;
                const size_type sample = begin + pair.sample, j = at.own + pair.unit;
                if (s < steps) g[n][0] += sums(0, begin, pair.sample, pair.unit);
                real by_before[P];
#pragma unroll
                for (int i = 0; i < P; ++i) by_before[i] = g[n][i];
                real by_x[G] = {}, by_u[U_EXTENT] = {}, by_p[Q_EXTENT] = {};
                if (moves[n]) {
                    g[n][0] += by_output[n];
                    Cell::backward(g[n], saved[n], after[n], earlier[n], p[n], by_x, by_u, by_before, by_p);
                }
                if (s) {
#pragma unroll
                    for (int d = 0; d < D; ++d)
                        delta[t * D * plane + (sample * D + d) * hidden + j] = delta_row(by_x, by_u, by_p, d);
                }
#pragma unroll
                for (int i = 0; i < P; ++i) entering[(sample * P + i) * hidden + j] = by_before[i];
            }
        }
        if (s) barrier.wait();
    }
    barrier.end();
}

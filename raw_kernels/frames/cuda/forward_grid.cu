// One direction of a wide layer of recurrent cells, as CELL_forward, in a cooperative launch whose blocks share out the
// hidden units.

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"
#include "frames/cuda/walk.cuh"

const int UNITS = TILE_UNITS, SHARES = TILE_SHARES, THREAD_UNITS = TILE_THREAD_UNITS, SAMPLES = TILE_SAMPLES,
          UNIT_LANES = TILE_UNIT_LANES, SAMPLE_LANES = TILE_SAMPLE_LANES, SAMPLE_WARPS = TILE_SAMPLE_WARPS,
          TERMS = TILE_TERMS, STAGES = TILE_STAGES, SUMS = R, INPUTS = 1;
#include "frames/cuda/grid.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, 1) CELL_forward_grid(
    const real* __restrict__ projected,     // (steps, batch | GATES, hidden): W_ih x + b_ih
    const real* __restrict__ weight_hh,     // (RECURRENT * hidden, hidden)
    const real* __restrict__ bias_hh,       // (RECURRENT * hidden)
    const real* __restrict__ unit,          // (PARAMETERS * hidden): of each unit
    const real* __restrict__ initial,       // (batch | STATES, hidden): before step 0
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ state,               // (steps, batch | STATES, hidden) output only, by time
    real* __restrict__ gates,               // (steps, batch | SAVED, hidden) output only, by time
    real* __restrict__ final,               // (batch | STATES, hidden) output only, after the last step
    real* __restrict__ partial,             // (TILE_PARTIALS * RECURRENT, batch, hidden) input and output: sums
                                            // that blocks exchange
    long long* __restrict__ arrived,        // (1) input and output: 0
    size_type steps, size_type hidden, size_type batch, int reverse)
{
    const int width = int(hidden);
    const Part at(width);
    const size_type plane = hidden * batch;
    const Memory memory(at);
    load_weights(memory, at, width,
                 [&](int, int k, int g, int j) { return weight_hh[(g * hidden + j) * hidden + k]; });
    const Sums sums = {memory, at, partial, width, batch};
    GridBarrier barrier(arrived);
    for (size_type s = 0; s < steps; ++s) {
        const size_type t = reverse ? steps - 1 - s : s;
        const real* const before = s ? state + (reverse ? t + 1 : t - 1) * P * plane : initial;
        const bool whole = hidden % PACK == 0 && in_packs(before);
        for (size_type begin = 0; begin < batch; begin += BLOCK_SAMPLES) {
            const int samples = int(min(size_type(BLOCK_SAMPLES), batch - begin));
            real x[PAIRS][G], u[PAIRS][R], now[PAIRS][P], p[PAIRS][Q_EXTENT];
            bool moves[PAIRS];
#pragma unroll
            for (int n = 0; n < PAIRS; ++n) {
                const Pair pair(n, at.units, samples);
                if (!pair.is_there) continue;
                const size_type sample = begin + pair.sample, j = at.own + pair.unit;
                moves[n] = t < lengths[sample];
#pragma unroll
                for (int i = 0; i < P; ++i) now[n][i] = __ldcg(before + (sample * P + i) * hidden + j);
#pragma unroll
                for (int g = 0; g < G; ++g) x[n][g] = projected[t * G * plane + (sample * G + g) * hidden + j];
#pragma unroll
                for (int g = 0; g < R; ++g) u[n][g] = bias_hh[g * hidden + j];
                load_unit(unit + j, width, p[n]);
            }
            add_up(memory, at, width, samples, [&](int) { return before + begin * P * hidden; }, P * hidden, whole);
            sums.hand_on(begin, samples, barrier);
#pragma unroll
            for (int n = 0; n < PAIRS; ++n) {
                const Pair pair(n, at.units, samples);
                if (!pair.is_there) continue;
                const size_type sample = begin + pair.sample, j = at.own + pair.unit;
                real after[P], saved[K_EXTENT] = {};
#pragma unroll
                for (int i = 0; i < P; ++i) after[i] = now[n][i];
                if (moves[n]) {
#pragma unroll
                    for (int g = 0; g < R; ++g) u[n][g] += sums(g, begin, pair.sample, pair.unit);
                    Cell::forward(x[n], u[n], now[n], p[n], after, saved);
                }
#pragma unroll
                for (int i = 0; i < P; ++i) {
                    state[t * P * plane + (sample * P + i) * hidden + j] = after[i];
                    if (s == steps - 1) final[(sample * P + i) * hidden + j] = after[i];
                }
#pragma unroll
                for (int k = 0; k < K; ++k) gates[t * K * plane + (sample * K + k) * hidden + j] = saved[k];
            }
        }
        if (s + 1 < steps) barrier.wait();
    }
    barrier.end();
}

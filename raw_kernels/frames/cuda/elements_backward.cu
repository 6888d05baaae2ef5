// Back through each chunk of one direction of a layer of cells without recurrent gates, from the gradient by the
// states at its end: the cell's gradients by x, parameters and former states. Gradients by each step's output come in
// on the way where `per_step`. A step with t >= lengths[b] hands sample b's gradient on as it is, and its own counts
// for nothing. A unit sees its own states alone: sets are units, and `hidden` is 1. Where `guarded` and what is
// `wanted` is 0, nothing is written. A thread a chunk of an element of (batch, sets).

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"
#include "frames/cuda/chunks.cuh"
#include "frames/cuda/walk.cuh"

// Steps whose numbers are read before the last of them is worked on.
const int AHEAD = 4;

extern "C" __global__ void CELL_backward(
    const real* __restrict__ state,         // (steps, batch | STATES, sets, hidden): of CELL_forward
    const real* __restrict__ gates,         // (steps, batch | KEPT, sets, hidden): of CELL_forward
    const real* __restrict__ initial,       // (batch | STATES, sets, hidden): before step 0
    const real* __restrict__ weight_hh,     // (0)
    const real* __restrict__ unit,          // (sets, PARAMETERS * hidden): of each unit
    const real* __restrict__ gradient,      // (steps, batch | sets, hidden) if per_step else (0): by each step's
                                            // output
    const real* __restrict__ boundary,      // ((steps + chunk - 1) // chunk, batch | STATES, sets, hidden): by the
                                            // states at each chunk's end, from later steps; chunks are of
                                            // steps, not times
    const long long* __restrict__ lengths,  // (batch)
    const int* __restrict__ wanted,         // (1) if guarded else (0)
    real* __restrict__ delta,               // (steps, batch | DELTAS, sets, hidden) output only, by time: by x; by
                                            // the parameters
    real* __restrict__ entering,            // ((steps + chunk - 1) // chunk, batch | STATES, sets, hidden) output
                                            // only, by the states before each chunk
    size_type steps, size_type hidden, size_type sets, size_type batch, size_type walks, size_type chunk,
    int per_step, int reverse, int guarded)
{
    if (guarded && !*wanted) return;
    const Chunks chunks = {lengths, steps, sets, batch, walks, chunk, 0, reverse};
    const size_type plane = hidden * walks;
    GRID_STRIDE(item, chunks.reduced() * plane) {
        const size_type piece = item / plane, b = item % plane / sets, set = item % sets, length = lengths[b];
        const Span whole = chunks.whole(piece);
        real p[Q_EXTENT], g[P];
        load_unit(unit + set * Q, 1, p);
        const auto element = [&](int rows, int row) { return (b * rows + row) * sets + set; };
#pragma unroll
        for (int i = 0; i < P; ++i) g[i] = boundary[piece * P * plane + element(P, i)];
#pragma unroll 1
        for (size_type last = whole.end - 1; last >= whole.begin; last -= AHEAD) {
            real kept[AHEAD][K_EXTENT], before[AHEAD][P], after[AHEAD][P], by_output[AHEAD];
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) {
                const size_type s = max(last - a, whole.begin), t = chunks.time(s);
                const real* const earlier = s ? state + chunks.time(s - 1) * P * plane : initial;
#pragma unroll
                for (int k = 0; k < K; ++k) kept[a][k] = gates[t * K * plane + element(K, k)];
#pragma unroll
                for (int i = 0; i < P; ++i) {
                    before[a][i] = Cell::reads_before >> i & 1 ? earlier[element(P, i)] : real(0);
                    after[a][i] = Cell::reads_after >> i & 1 ? state[t * P * plane + element(P, i)] : real(0);
                }
                by_output[a] = per_step ? gradient[t * plane + element(1, 0)] : real(0);
            }
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) {
                const size_type s = last - a;
                if (s < whole.begin) continue;
                const size_type t = chunks.time(s);
                real by_x[G] = {}, by_u[U_EXTENT], by_before[P], by_p[Q_EXTENT] = {};
                if (t < length) {
                    g[0] += by_output[a];
                    Cell::backward(g, kept[a], after[a], before[a], p, by_x, by_u, by_before, by_p);
#pragma unroll
                    for (int i = 0; i < P; ++i) g[i] = by_before[i];
                }
                real* const put = delta + t * D * plane + element(D, 0);
#pragma unroll
                for (int d = 0; d < D; ++d) put[d * sets] = d < G ? by_x[d] : by_p[d - G];
            }
        }
#pragma unroll
        for (int i = 0; i < P; ++i) entering[piece * P * plane + element(P, i)] = g[i];
    }
}

// The product of the transposed Jacobians of each chunk of steps of a layer of cells without recurrent gates, P x P
// for each unit, and what the chunk makes of its own steps' gradients. Each column of a product carries a power of
// two, taken out of it every RENORMALISED steps (reduce.cuh). A unit sees its own states alone: sets are units, and
// `hidden` is 1. A thread a chunk of an element of (batch, sets).

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"
#include "frames/cuda/chunks.cuh"
#include "frames/cuda/walk.cuh"
#include "frames/cuda/reduce.cuh"

// A step back of one column.
__device__ __forceinline__ void step_back(const real* a, real* column)
{
    real d[P];
    Cell::enter(a, column);
    Cell::carry(a, column, d);
#pragma unroll
    for (int i = 0; i < P; ++i) column[i] = Cell::direct >> i & 1 ? d[i] : real(0);
}

extern "C" __global__ void CELL_reduce(
    const real* __restrict__ gates,         // (steps, batch | KEPT, sets, hidden): of CELL_forward
    const real* __restrict__ state,         // (steps, batch | STATES, sets, hidden): of CELL_forward
    const real* __restrict__ initial,       // (batch | STATES, sets, hidden): before step 0
    const real* __restrict__ weight_hh,     // (0)
    const real* __restrict__ unit,          // (sets, PARAMETERS * hidden): of each unit
    const real* __restrict__ gradient,      // (steps, batch | sets, hidden) if per_step else (0): by each step's
                                            // output
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ maps,                // ((steps + chunk - 1) // chunk - first, walks, STATES * hidden,
                                            // STATES * hidden) output only, by columns: what a unit gradient
                                            // by state j behind the chunk becomes before it, without its
                                            // power of two
    int* __restrict__ exponents,            // ((steps + chunk - 1) // chunk - first, walks, STATES * hidden)
                                            // output only, by column
    real* __restrict__ offsets,             // ((steps + chunk - 1) // chunk - first, batch | STATES, sets, hidden)
                                            // if per_step else (0) output only
    size_type steps, size_type hidden, size_type sets, size_type batch, size_type walks, size_type chunk,
    size_type first, int per_step, int reverse)
{
    const Chunks chunks = {lengths, steps, sets, batch, walks, chunk, first, reverse};
    const Reduction given = {gates, state, initial, weight_hh, unit, gradient, maps, offsets, exponents,
                             chunks, int(hidden), per_step};
    const size_type plane = hidden * walks;
    GRID_STRIDE(item, chunks.reduced() * plane) {
        const size_type piece = item / plane, b = item % plane / sets, set = item % sets;
        const Span span = chunks.span(piece + first, b);
        const Walk walk(set, b, 1, sets);
        real columns[P][P], own[P] = {};
        int powers[P] = {}, since = 0;
#pragma unroll
        for (int c = 0; c < P; ++c)
#pragma unroll
            for (int i = 0; i < P; ++i) columns[c][i] = c == i ? real(1) : real(0);
#pragma unroll 1
        for (size_type s = span.end - 1; s >= span.begin; --s) {
            const Step step(given, int(s), walk);
            real rows[ROWS], a[A_EXTENT];
            step.read(0, rows);
            step.coefficients(0, rows, a);
            if (per_step) {
                own[0] += *given.step_gradient(s, walk);
                step_back(a, own);
            }
#pragma unroll
            for (int c = 0; c < P; ++c) step_back(a, columns[c]);
            if (++since < RENORMALISED && s != span.begin) continue;
            since = 0;
#pragma unroll
            for (int c = 0; c < P; ++c) {
                real largest = 0;
#pragma unroll
                for (int i = 0; i < P; ++i) largest = max(largest, real(fabs(columns[c][i])));
                const int exponent = exponent_of(largest);
                const real factor = power_of_two(-exponent, real(0));
#pragma unroll
                for (int i = 0; i < P; ++i) columns[c][i] *= factor;
                powers[c] += exponent;
            }
        }
        const size_type map = piece * walks + set * batch + b;
#pragma unroll
        for (int c = 0; c < P; ++c) {
            exponents[map * P + c] = powers[c];
#pragma unroll
            for (int i = 0; i < P; ++i) maps[(map * P + c) * P + i] = columns[c][i];
        }
        if (per_step) {
#pragma unroll
            for (int i = 0; i < P; ++i) offsets[piece * P * plane + walk.start(P) + i * sets] = own[i];
        }
    }
}

// The product of the transposed Jacobians of a chunk of steps, formed step by step and never stored:
// M = J_firstᵀ ... J_lastᵀ, so that the gradient before the chunk is M times the one behind it. Column j is
// what a unit gradient by element j of the state becomes; the chunk's own gradients, where there are any, are
// one more column that starts at 0 and takes each step's gradient in.
//
// Range: each column carries a power of two, taken out of it every RENORMALISED steps.

#include "powers.cuh"

const int RENORMALISED = 8;

// What a reduction is given and gives.
struct Reduction {
    const real *gates, *state, *initial, *weight_hh, *unit, *gradient;
    real *maps, *offsets;
    int* exponents;
    Chunks chunks;
    int hidden, per_step;

    // The gradient by step s's output of a walk's first unit.
    __device__ __forceinline__ const real* step_gradient(size_type s, const Walk& walk) const
    {
        return gradient + chunks.time(s) * hidden * chunks.batch + walk.start(1);
    }
};

// Rows that a step reads of a unit: what was saved, states after, states before; whether the cell reads one, and
// how many of those that come before it.
const int ROWS = K + 2 * P;

__device__ constexpr bool is_read(int row)
{
    return row < K || (row < K + P ? Cell::reads_after >> (row - K) : Cell::reads_before >> (row - K - P)) & 1;
}

__device__ constexpr int read_before(int row) { return row ? read_before(row - 1) + is_read(row - 1) : 0; }

const int ROWS_READ = read_before(ROWS);

// One step of one walk.
struct Step {
    const real *gates, *now, *before, *unit;
    int hidden;

    // Step s of a walk.
    __device__ __forceinline__ Step(const Reduction& given, int s, const Walk& walk) : hidden(given.hidden)
    {
        const Chunks& chunks = given.chunks;
        const int plane = hidden * int(chunks.batch);
        gates = given.gates + chunks.time(s) * (K * plane) + walk.start(K);
        now = given.state + chunks.time(s) * (P * plane) + walk.start(P);
        before = (s ? given.state + chunks.time(s - 1) * (P * plane) : given.initial) + walk.start(P);
        unit = given.unit + (Q ? opaque(0) : 0);
    }

    // Where row `row` of unit k lies.
    __device__ __forceinline__ const real* place(int row, int k) const
    {
        const real* const first = row < K ? gates : row < K + P ? now : before;
        return first + ((row < K ? row : (row - K) % P) * hidden + k);
    }

    // The coefficients of unit k, from its rows.
    __device__ __forceinline__ void coefficients(int k, const real* rows, real* a) const
    {
        real p[Q_EXTENT];
        load_unit(unit + k, hidden, p);
        Cell::coefficients_of(rows, rows + K, rows + K + P, p, a);
    }

    // The rows of unit k.
    __device__ __forceinline__ void read(int k, real* rows) const
    {
        // Not known to the compiler, which else reads too many units ahead, and spills.
        const int unit = G == 2 ? opaque(k) : k;
#pragma unroll
        for (int row = 0; row < ROWS; ++row) rows[row] = is_read(row) ? *place(row, unit) : real(0);
    }
};

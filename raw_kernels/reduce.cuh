// The product of the transposed Jacobians of a chunk of steps, formed in registers step by step and never
// stored: M = J_firstᵀ ... J_lastᵀ, so that the gradient before the chunk is M times the one behind it.
// Column j is what a unit gradient by element j of the state becomes; the chunk's own gradients, where
// there are any, are one more column that starts at 0 and takes each step's gradient in.
//
// A cell is a type with
//   gates, parts, coefficients   W_hh has gates * hidden rows, the state parts * hidden elements
//   carried                      the part that also reaches itself without W_hh, or -1
//   Step(cell, chunks, s, b)     one step of one sample; load(k, a) gives the coefficients a of unit k
//   enter(a, x)                  x, the unit's gradient by part, as W_hh's product takes it
//   entry(a, w, p)               by part, what one x adds to a row: w are the gates' weights
//   carry(a, x)                  what x adds to its own row of `carried`
//
// Range: each column carries a power of two, taken out of it every RENORMALISED steps.

#include "chunks.cuh"

const int RENORMALISED = 8;

// What one 16-byte load of shared memory gives.
struct __align__(16) Pack {
    real values[16 / sizeof(real)];
};

const int PACK = 16 / int(sizeof(real));

// `value`, without the compiler knowing it: what is read from an address made of it is read there and not
// ahead of a loop, where all of W_hh would be kept in registers and spilled.
__device__ __forceinline__ int opaque(int value)
{
    asm volatile("" : "+r"(value));
    return value;
}

// 2^exponent, for exponents of normal numbers.
__device__ __forceinline__ float power_of_two(int exponent, float)
{
    return __int_as_float((exponent + 127) << 23);
}

__device__ __forceinline__ double power_of_two(int exponent, double)
{
    return __longlong_as_double((long long)(exponent + 1023) << 52);
}

// The power of two that brings `largest` into [1/2, 1); 0 for zero and for what is not finite.
__device__ __forceinline__ int exponent_of(real largest)
{
    int exponent = 0;
    if (largest > real(0) && largest < real(INFINITY)) frexp(largest, &exponent);
    const int most = sizeof(real) == 4 ? 126 : 1022;
    return exponent < -most ? -most : exponent > most ? most : exponent;
}

// What the reduction of any cell is given and gives.
struct Reduction {
    const real *weight_hh, *gradient;
    real *maps, *offsets;
    int* exponents;
    Chunks chunks;
    size_type hidden;
    int per_step;

    // The gradient by step s's output of sample b, its units a batch apart.
    __device__ const real* step_gradient(size_type s, size_type b) const
    {
        return gradient + chunks.time(s) * hidden * chunks.batch + b;
    }
};

// Copies W_hh to shared memory as (gates, N, N), zeros around it.
template <int N, int GATES>
__device__ inline void pad_weights(const real* __restrict__ weight_hh, size_type hidden, real* padded)
{
    for (int place = threadIdx.x; place < GATES * N * N; place += blockDim.x) {
        const int gate = place / (N * N), row = place / N % N, column = place % N;
        const bool inside = row < hidden && column < hidden;
        padded[place] = inside ? weight_hh[(gate * hidden + row) * hidden + column] : real(0);
    }
    __syncthreads();
}

// A step back of C columns held in registers, (parts * N, C).
template <class Cell, int N, int C>
__device__ __forceinline__ void step_back(
    const Cell& cell, const real* weights, const Reduction& given, size_type s, size_type b,
    bool entering, real (&columns)[Cell::parts * N][C])
{
    const int hidden = int(given.hidden);
    real after[Cell::parts * N][C];
    if (entering) {
        const real* here = given.step_gradient(s, b);
#pragma unroll
        for (int k = 0; k < N; ++k)
            if (k < hidden) columns[k][0] += here[k * given.chunks.batch];
    }
    const typename Cell::Step step(cell, given.chunks, s, b);
#pragma unroll
    for (int i = 0; i < Cell::parts * N; ++i)
#pragma unroll
        for (int c = 0; c < C; ++c) after[i][c] = real(0);
    const Pack* packed = reinterpret_cast<const Pack*>(weights) + opaque(0);
#pragma unroll
    for (int k = 0; k < N; ++k) {
        real x[C][Cell::parts], a[Cell::coefficients] = {};
        if (k < hidden) step.load(k, a);
#pragma unroll
        for (int c = 0; c < C; ++c) {
#pragma unroll
            for (int part = 0; part < Cell::parts; ++part) x[c][part] = columns[part * N + k][c];
            Cell::enter(a, x[c]);
        }
#pragma unroll
        for (int pack = 0; pack < N / PACK; ++pack) {
            Pack w[Cell::gates];
#pragma unroll
            for (int gate = 0; gate < Cell::gates; ++gate)
                w[gate] = packed[((gate * N + k) * N) / PACK + pack];
#pragma unroll
            for (int lane = 0; lane < PACK; ++lane) {
                real weight[Cell::gates], p[Cell::parts];
#pragma unroll
                for (int gate = 0; gate < Cell::gates; ++gate) weight[gate] = w[gate].values[lane];
                Cell::entry(a, weight, p);
#pragma unroll
                for (int c = 0; c < C; ++c)
#pragma unroll
                    for (int part = 0; part < Cell::parts; ++part)
                        after[pack * PACK + lane][c] += p[part] * x[c][part];
            }
        }
        if (Cell::carried >= 0)
#pragma unroll
            for (int c = 0; c < C; ++c)
                after[(Cell::carried > 0 ? Cell::carried : 0) * N + k][c] += Cell::carry(a, x[c]);
    }
#pragma unroll
    for (int i = 0; i < Cell::parts * N; ++i)
#pragma unroll
        for (int c = 0; c < C; ++c) columns[i][c] = after[i][c];
}

// Takes the power of two out of each column.
template <int ROWS, int C>
__device__ __forceinline__ void renormalise(real (&columns)[ROWS][C], int (&exponents)[C])
{
#pragma unroll
    for (int c = 0; c < C; ++c) {
        real largest = 0;
#pragma unroll
        for (int i = 0; i < ROWS; ++i) largest = max(largest, real(fabs(columns[i][c])));
        const int exponent = exponent_of(largest);
        const real factor = power_of_two(-exponent, real(0));
#pragma unroll
        for (int i = 0; i < ROWS; ++i) columns[i][c] *= factor;
        exponents[c] += exponent;
    }
}

// A thread C columns of one map, samples innermost; the column of the chunk's own gradients has a thread
// of its own. N holds `hidden`, zeros around it.
template <class Cell, int N, int C>
__device__ inline void reduce_in_registers(const Cell& cell, const Reduction& given, real* shared)
{
    pad_weights<N, Cell::gates>(given.weight_hh, given.hidden, shared);
    const Chunks& chunks = given.chunks;
    const int hidden = int(given.hidden), size = Cell::parts * hidden;
    const int whole = (size + C - 1) / C, groups = whole + (given.per_step ? 1 : 0);
    GRID_STRIDE(item, chunks.reduced() * groups * chunks.batch) {
        const size_type b = item % chunks.batch, rest = item / chunks.batch;
        const size_type map = rest / groups * chunks.batch + b;
        const int group = int(rest % groups);
        const bool entering = group == whole;
        const Span span = chunks.span(rest / groups + chunks.first, b);
        real columns[Cell::parts * N][C];
        int exponents[C] = {};
#pragma unroll
        for (int i = 0; i < Cell::parts * N; ++i) {
            const int element = i / N * hidden + i % N;
#pragma unroll
            for (int c = 0; c < C; ++c)
                columns[i][c] = !entering && i % N < hidden && element == group * C + c ? real(1) : real(0);
        }
        int since = 0;
        for (size_type s = span.end - 1; s >= span.begin; --s) {
            step_back<Cell, N, C>(cell, shared, given, s, b, entering, columns);
            if ((++since == RENORMALISED || s == span.begin) && !entering) {
                renormalise<Cell::parts * N, C>(columns, exponents);
                since = 0;
            }
        }
#pragma unroll
        for (int i = 0; i < Cell::parts * N; ++i) {
            if (i % N >= hidden) continue;
            const int element = i / N * hidden + i % N;
            if (entering)
                given.offsets[(rest / groups * size + element) * chunks.batch + b] = columns[i][0];
#pragma unroll
            for (int c = 0; c < C; ++c)
                if (group * C + c < size)
                    given.maps[(map * size + group * C + c) * size + element] = columns[i][c];
        }
#pragma unroll
        for (int c = 0; c < C; ++c)
            if (group * C + c < size) given.exponents[map * size + group * C + c] = exponents[c];
    }
}

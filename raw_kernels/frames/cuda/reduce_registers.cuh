// The reduction in registers: a thread COLUMNS columns of one map, whose threads lie side by side; the column of the chunk's
// own gradients has a thread of its own. WIDTH holds the hidden units, zeros around them. The
// weights lie in shared memory.

const int BLOCK = WALKS;

#include "frames/cuda/stage.cuh"

// Whether the units' rows of the next step are copied while this one's are used: where it is one row, whose
// address takes few registers.
const bool STAGED = COPIES && ROWS_READ == 1;
typedef Stage<STAGED ? ROWS_READ : 1, STAGED ? WIDTH : 1> Rows;

// Whether a unit's rows are read while the one before it is multiplied, as far as the compiler keeps them in
// registers beside the columns.
const bool READS_AHEAD = COPIES && G > 2;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
const bool SPILLS = READS_AHEAD || (!COPIES && G > 1);
#else
const bool SPILLS = false;
#endif

// Columns a thread holds: as many as the compiler keeps in registers.
const bool HALVED = sizeof(real) == 8 || (P > 1 && Q) || SPILLS;
const int COLUMNS = IN_REGISTERS > 1 && HALVED ? IN_REGISTERS / 2 : IN_REGISTERS;

// Copies W_hh to shared memory as (gates, WIDTH, WIDTH), zeros around it.
__device__ __forceinline__ void pad_weights(const real* __restrict__ weight_hh, int hidden, real* padded)
{
    __syncthreads();
    for (int place = threadIdx.x; place < R * WIDTH * WIDTH; place += blockDim.x) {
        const int gate = place / (WIDTH * WIDTH), row = place / WIDTH % WIDTH, column = place % WIDTH;
        const bool inside = row < hidden && column < hidden;
        padded[place] = inside ? weight_hh[(gate * hidden + row) * hidden + column] : real(0);
    }
    __syncthreads();
}

// Starts the copies of unit k's rows. A unit that is not there is as the last one; nothing comes of it, since its
// weights and its elements of the columns are 0.
__device__ __forceinline__ void fetch_unit(const Step& step, int k, Rows& rows)
{
#pragma unroll
    for (int row = 0; row < ROWS; ++row)
        if (is_read(row)) rows.fetch(k, read_before(row), step.place(row, min(k, step.hidden - 1)));
    rows.close();
}

// A step back of a thread's columns, from step s to step `later`, the one that follows or s where none does.
__device__ __forceinline__ void step_back(
    const Reduction& given, const real* weights, int s, int later, const Walk& walk, bool entering, Rows& rows,
    real (&columns)[P * WIDTH][COLUMNS])
{
    const int hidden = given.hidden;
    real after[P * WIDTH][COLUMNS];
    if (entering) {
        const real* here = given.step_gradient(s, walk);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k)
            if (k < hidden) columns[k][0] += here[k];
    }
    const Step step(given, s, walk), next(given, later, walk);
#pragma unroll
    for (int i = 0; i < P * WIDTH; ++i)
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) after[i][c] = real(0);
    real ahead[ROWS];
    if (!STAGED && READS_AHEAD) step.read(0, ahead);
    const Pack* packed = reinterpret_cast<const Pack*>(weights) + opaque(0);
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
        real x[COLUMNS][P], a[Cell::coefficients] = {};
        if (STAGED) {
            rows.wait<WIDTH - 1>();
            real of_unit[ROWS];
#pragma unroll
            for (int row = 0; row < ROWS; ++row)
                of_unit[row] = is_read(row) ? rows.read(k, read_before(row)) : real(0);
            step.coefficients(min(k, hidden - 1), of_unit, a);
            fetch_unit(next, k, rows);
        } else if (READS_AHEAD) {
            if (k < hidden) step.coefficients(k, ahead, a);
            if (k + 1 < WIDTH && k + 1 < hidden) step.read(k + 1, ahead);
        } else if (k < hidden) {
            step.read(k, ahead);
            step.coefficients(k, ahead, a);
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
#pragma unroll
            for (int i = 0; i < P; ++i) x[c][i] = columns[i * WIDTH + k][c];
            Cell::enter(a, x[c]);
        }
#pragma unroll
        for (int pack = 0; pack < WIDTH / PACK; ++pack) {
            Pack w[R];
#pragma unroll
            for (int gate = 0; gate < R; ++gate)
                w[gate] = packed[((gate * WIDTH + k) * WIDTH) / PACK + pack];
#pragma unroll
            for (int lane = 0; lane < PACK; ++lane) {
                real weight[R], p[P];
#pragma unroll
                for (int gate = 0; gate < R; ++gate) weight[gate] = w[gate].values[lane];
                Cell::entry(a, weight, p);
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
                    for (int i = 0; i < P; ++i) after[pack * PACK + lane][c] += p[i] * x[c][i];
            }
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            real d[P];
            Cell::carry(a, x[c], d);
#pragma unroll
            for (int i = 0; i < P; ++i)
                if (Cell::direct >> i & 1) after[i * WIDTH + k][c] += d[i];
        }
    }
#pragma unroll
    for (int i = 0; i < P * WIDTH; ++i)
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) columns[i][c] = after[i][c];
}

// Takes the power of two out of each column.
template <int SIZE>
__device__ __forceinline__ void renormalise(real (&columns)[SIZE][COLUMNS], int (&exponents)[COLUMNS])
{
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        real largest = 0;
#pragma unroll
        for (int i = 0; i < SIZE; ++i) largest = max(largest, real(fabs(columns[i][c])));
        const int exponent = exponent_of(largest);
        const real factor = power_of_two(-exponent, real(0));
#pragma unroll
        for (int i = 0; i < SIZE; ++i) columns[i][c] *= factor;
        exponents[c] += exponent;
    }
}

// What a thread does in block `number`: the walk and the chunk of a map, its first column; whether there is
// anything, and whether it is the chunk's own gradients' column. Made anew where it is needed, so that no register
// holds it while columns are multiplied.
struct Work {
    int sample, chunk, start;
    bool exists, entering;

    __device__ __forceinline__ Work(const Reduction& given, int number)
    {
        const int parts = parts_of(given), batch = int(given.chunks.batch);
        const size_type item = size_type(number) * BLOCK + threadIdx.x;
        const int rest = int(item / parts), part = int(item % parts);
        sample = rest % batch;
        chunk = rest / batch;
        start = part * COLUMNS;
        exists = chunk < given.chunks.reduced();
        entering = given.per_step && part == parts - 1;
    }

    __device__ __forceinline__ Walk walk(const Reduction& given) const
    {
        return {sample, given.hidden};
    }

    // Parts of a map, the last of them its own gradients' column where there is one.
    __device__ __forceinline__ static int parts_of(const Reduction& given)
    {
        return (P * opaque(given.hidden) + COLUMNS - 1) / COLUMNS + (given.per_step ? 1 : 0);
    }

    __device__ __forceinline__ static int blocks(const Reduction& given)
    {
        return int((given.chunks.reduced() * parts_of(given) * given.chunks.batch + BLOCK - 1) / BLOCK);
    }
};

// One thread's columns of one map.
__device__ __forceinline__ void reduce_columns(
    const Reduction& given, const real* weights, int number, Rows& rows)
{
    const Work work(given, number);
    const Walk own = work.walk(given);
    const bool entering = work.entering;
    constexpr int SIZE = P * WIDTH;
    const Chunks& chunks = given.chunks;
    const int hidden = given.hidden, size = P * hidden;
    const Span span = chunks.span(work.chunk + chunks.first, own.sample);
    real columns[SIZE][COLUMNS];
    int exponents[COLUMNS] = {};
#pragma unroll
    for (int i = 0; i < SIZE; ++i) {
        const int element = i / WIDTH * hidden + i % WIDTH;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c)
            columns[i][c] = !entering && i % WIDTH < hidden && element == work.start + c ? real(1) : real(0);
    }
    if (STAGED && span.end > span.begin) {
        const Step last(given, int(span.end) - 1, own);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) fetch_unit(last, k, rows);
    }
    const int begin = int(span.begin);
#pragma unroll 1
    for (int s = int(span.end) - 1; s >= begin; --s) {
        step_back(given, weights, s, max(s - 1, begin), own, entering, rows, columns);
        if ((s - begin) % RENORMALISED == 0 && !entering) renormalise(columns, exponents);
    }
    rows.wait<0>();
    const Work done(given, opaque(number));
    const int start = done.start;
    const size_type map = done.chunk * chunks.batch + done.sample;
    real* const offsets = given.offsets + map * size;
#pragma unroll
    for (int i = 0; i < SIZE; ++i) {
        if (i % WIDTH >= hidden) continue;
        const int element = i / WIDTH * hidden + i % WIDTH;
        if (done.entering) offsets[element] = columns[i][0];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c)
            if (start + c < size) given.maps[(map * size + start + c) * size + element] = columns[i][c];
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c)
        if (start + c < size) given.exponents[map * size + start + c] = exponents[c];
}

__device__ __forceinline__ void reduce(const Reduction& given, real* shared)
{
    Rows rows;
    pad_weights(given.weight_hh, given.hidden, shared);
#pragma unroll 1
    for (int number = blockIdx.x; number < Work::blocks(given); number += gridDim.x) {
        const Work work(given, number);
        if (work.exists) reduce_columns(given, shared, number, rows);
    }
}

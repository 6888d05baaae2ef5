// Scans over the boundaries of chunks: gradients backward in time, Newton's steps forward.

#include "prelude.cuh"

// ---- chunk_scan ----

#include "boundaries.cuh"
#include "pieces.cuh"

// Gradients at the boundaries of chunks: boundary_{k-1} = M_k boundary_k + offset_k from the last chunk on,
// where column j of M_k carries a power of two, which scales element j of what it is multiplied with: a
// column that grew past the range leaves a zero a zero.
//
// States lie as (batch, states, hidden). `maps` begins at a multiple of 16 bytes.

struct Backward {
    static const bool COLUMNS = false;
    bool affine;

    __device__ __forceinline__ real offered(real value, int exponent) const { return scaled(value, exponent); }

    __device__ __forceinline__ real taken(real sum, real added, int) const
    {
        return sum + (affine ? added : real(0));
    }
};

// As many threads share a row as there are for it, and take every so many PACKs of columns.
__device__ inline void scan_by_pieces(const BoundaryScan& walk, const Backward& way, const real* last, Pieces& pieces)
{
    const int size = walk.size, columns = pieces.columns, first = threadIdx.x;
    const int rows = min((size + 31) / 32 * 32, THREADS), parts = THREADS / rows;
    // Spare threads do nothing.
    const int part = first / rows, begin = part < parts ? first % rows : size;
    real *const held = pieces.held, *const values = pieces.values;
    real *const mine = values + part * padded(size), *found = walk.found;
#pragma unroll 1
    for (int row = first; row < size; row += THREADS) values[row] = last[pieces.start_of_walk + row];
    pieces.start();
#pragma unroll 1
    for (size_type m = 0; m < walk.count; ++m, found += walk.found_apart) {
#pragma unroll 1
        for (int column = 0; column < size; column += columns) {
            pieces.wait();
            if (column == 0) {
#pragma unroll 1
                for (int row = first; row < size; row += THREADS) {
                    held[row] = way.offered(values[row], pieces.exponents()[row]);
                    values[row] = way.taken(real(0), pieces.added()[row], 0);
                    for (int p = 1; p < parts; ++p) values[p * padded(size) + row] = real(0);
                }
            }
            __syncthreads();
            pieces.fetch();
            const int count = min(columns, size - column), whole = count - count % PACK;
#pragma unroll 1
            for (int row = begin; row < size; row += rows) {
                const real* const entries = pieces.piece() + row;
                real sums[PACK] = {mine[row]};
#pragma unroll 2
                for (int j = part * PACK; j < whole; j += parts * PACK) {
                    const Pack pack = reinterpret_cast<const Pack*>(held + column + j)[0];
#pragma unroll
                    for (int k = 0; k < PACK; ++k) sums[k] += entries[(j + k) * size] * pack.values[k];
                }
#pragma unroll 1
                for (int j = whole + part; j < count; j += parts)
                    sums[1] += entries[j * size] * held[column + j];
#pragma unroll
                for (int k = 1; k < PACK; ++k) sums[0] += sums[k];
                mine[row] = sums[0];
            }
            pieces.leave(column + columns >= size);
        }
        __syncthreads();
#pragma unroll 1
        for (int row = first; row < size; row += THREADS) {
            for (int p = 1; p < parts; ++p) values[row] += values[p * padded(size) + row];
            found[pieces.start_of_walk + row] = values[row];
        }
    }
    __syncthreads();
}

extern "C" __global__ void chunk_scan(
    const real* __restrict__ maps,      // (chunks - 1, batch, states * hidden, states * hidden): by
                                        // columns, of chunk 1 on
    const int* __restrict__ exponents,  // (chunks - 1, batch, states * hidden)
    const real* __restrict__ offsets,   // (chunks - 1, batch | states, hidden) if affine else (0)
    const real* __restrict__ last,      // (batch | states, hidden): the gradient behind the last chunk
    real* __restrict__ boundary,        // (chunks, batch | states, hidden) output only, the gradient
                                        // behind each chunk
    size_type chunks, size_type states, size_type hidden, size_type batch, int affine)
{
    extern __shared__ __align__(16) real shared[];
    const size_type size = states * hidden, plane = size * batch;
    const size_type first = max(chunks - 2, size_type(0));
    const Backward way = {affine != 0};
    for (size_type w = blockIdx.x; w < batch; w += gridDim.x) {
        const size_type item = first * batch + w;
        // Without offsets something else is read in their place, and left out.
        const BoundaryScan walk = {maps + item * size * size, exponents + item * size,
                                   affine ? offsets + first * plane : last, boundary + first * plane, chunks - 1,
                                   -batch, affine ? -plane : 0, -plane, int(size)};
        real* const end = boundary + (chunks - 1) * plane;
        const size_type start = w * size;
#define SCAN(N, FULL)                                                                      \
    do {                                                                                   \
        const int mine = min(int(threadIdx.x), int(size) - 1);                             \
        const size_type place = start + mine;                                              \
        if (threadIdx.x < size) end[place] = last[place];                                  \
        if (chunks > 1) scan_in_registers<N, FULL>(walk, way, last[place], place, shared); \
    } while (false)
        if (size == 20) SCAN(20, true);
        else if (size < 20) SCAN(20, false);
        else if (size == 40) SCAN(40, true);
        else {
            Pieces pieces(walk, start, shared);
#pragma unroll 1
            for (int i = threadIdx.x; i < size; i += THREADS) end[start + i] = last[start + i];
            scan_by_pieces(walk, way, last, pieces);
        }
    }
}

// ---- newton_scan ----

#include "boundaries.cuh"
#include "pieces.cuh"

// Newton's step for the states at the boundaries of chunks, forward in time: step_k = mismatch_k +
// damping M_kᵀ step_{k-1}, where M_k is the product of the transposed Jacobians of chunk k, so that M_kᵀ
// says how the state behind the chunk moves with the one before it. Column j of M_k carries a power of two.
//
// States lie as (batch, states, hidden), and maps as (chunks, batch): those of a walk over all chunks at once, whose
// samples are pairs of chunk and sample. `maps` begins at a multiple of 16 bytes.

struct Forward {
    static const bool COLUMNS = true;
    real damping;

    __device__ __forceinline__ real offered(real value, int) const { return value; }

    __device__ __forceinline__ real taken(real sum, real added, int exponent) const
    {
        return added + damping * scaled(sum, exponent);
    }
};

// A warp takes columns of a piece, TOGETHER at a time, and its lanes their elements.
__device__ inline void scan_by_pieces(const BoundaryScan& walk, const Forward& way, Pieces& pieces)
{
    const int TOGETHER = 4;
    const int size = walk.size, columns = pieces.columns;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = THREADS / 32;
    real* found = walk.found;
#pragma unroll 1
    for (int i = threadIdx.x; i < size; i += THREADS) pieces.held[i] = real(0);
    pieces.start();
    int turn = 0;
#pragma unroll 1
    for (size_type m = 0; m < walk.count; ++m, turn ^= 1, found += walk.found_apart) {
        const real* const held = pieces.held + turn * padded(size);
        real* const next = pieces.held + (turn ^ 1) * padded(size);
#pragma unroll 1
        for (int column = 0; column < size; column += columns) {
            pieces.wait();
            __syncthreads();
            pieces.fetch();
            const int count = min(columns, size - column);
#pragma unroll 1
            for (int c = warp; c < count; c += TOGETHER * warps) {
                const real* entries[TOGETHER];
                real sums[TOGETHER] = {}, mine = 0;
#pragma unroll
                for (int t = 0; t < TOGETHER; ++t)
                    entries[t] = pieces.piece() + min(c + t * warps, count - 1) * size;
#pragma unroll 2
                for (int i = lane; i < size; i += 32)
#pragma unroll
                    for (int t = 0; t < TOGETHER; ++t) sums[t] += entries[t][i] * held[i];
#pragma unroll
                for (int apart = 16; apart > 0; apart /= 2)
#pragma unroll
                    for (int t = 0; t < TOGETHER; ++t)
                        sums[t] += __shfl_xor_sync(0xffffffffu, sums[t], apart);
#pragma unroll
                for (int t = 0; t < TOGETHER; ++t) mine = lane == t ? sums[t] : mine;
                const int j = c + lane * warps, element = column + j;
                if (lane < TOGETHER && j < count)
                    found[pieces.start_of_walk + element] = next[element]
                        = way.taken(mine, pieces.added()[element], pieces.exponents()[element]);
            }
            pieces.leave(column + columns >= size);
        }
    }
    __syncthreads();
}

extern "C" __global__ void newton_scan(
    const real* __restrict__ maps,      // (chunks, batch, states * hidden, states * hidden): by columns
    const int* __restrict__ exponents,  // (chunks, batch, states * hidden)
    const real* __restrict__ mismatch,  // (chunks, batch | states, hidden): the state behind each chunk
                                        // less the one assumed there
    real* __restrict__ step,            // (chunks, batch | states, hidden) output only, what to add to
                                        // the assumed state behind each chunk
    size_type chunks, size_type states, size_type hidden, size_type batch, double damping)
{
    extern __shared__ __align__(16) real shared[];
    const size_type size = states * hidden, plane = size * batch;
    const Forward way = {real(damping)};
    for (size_type w = blockIdx.x; w < batch; w += gridDim.x) {
        const BoundaryScan walk = {maps + w * size * size, exponents + w * size, mismatch, step, chunks,
                                   batch, plane, plane, int(size)};
        const size_type start = w * size;
        const int mine = min(int(threadIdx.x), int(size) - 1);
#define SCAN(N, FULL) scan_in_registers<N, FULL>(walk, way, real(0), start + mine, shared)
        if (size == 20) SCAN(20, true);
        else if (size < 20) SCAN(20, false);
        else if (size == 40) SCAN(40, true);
        else {
            Pieces pieces(walk, start, shared);
            scan_by_pieces(walk, way, pieces);
        }
    }
}

// ---- newton_mismatch ----

// By how much the end of each chunk of a walk misses the state that was assumed behind it; nothing is assumed
// behind the last one.
extern "C" __global__ void newton_mismatch(
    const real* __restrict__ starts,  // (chunks * batch | rows): the state assumed before each chunk
    const real* __restrict__ ends,    // (chunks * batch | rows): the state behind it
    real* __restrict__ mismatch,      // (chunks, batch | rows) output only
    size_type chunks, size_type rows, size_type batch)
{
    const size_type plane = batch * rows;
    GRID_STRIDE(item, chunks * plane)
        mismatch[item] = item + plane < chunks * plane ? ends[item] - starts[item + plane] : real(0);
}

// ---- newton_errors ----

// How far Newton's iteration is, for each state (an LSTM has two) of each sample: the largest step by what is
// tolerated of the chunk's end, and the largest mismatch by the largest end of all chunks; NaN where a number is.
//
// A block a state of a sample, a thread every THREADS-th chunk; wants THREADS threads a block.

#define THREADS 256

// The larger one, NaN where one is.
__device__ __forceinline__ real larger(real a, real b) { return a > b || a != a ? a : b; }

extern "C" __global__ void newton_errors(
    const real* __restrict__ ends,      // (chunks * batch | states, hidden): the state behind each chunk
    const real* __restrict__ mismatch,  // (chunks, batch | states, hidden)
    const real* __restrict__ step,      // (chunks, batch | states, hidden)
    real* __restrict__ errors,          // (2, states, batch) output only
    size_type chunks, size_type states, size_type hidden, size_type batch, double tolerance, double least)
{
    __shared__ real shared[3][THREADS];
    for (size_type item = blockIdx.x; item < states * batch; item += gridDim.x) {
        const size_type state = item / batch, lane = item % batch;
        real error = 0, missed = 0, largest = 0;
        for (size_type k = threadIdx.x; k < chunks; k += THREADS) {
            size_type place = ((k * batch + lane) * states + state) * hidden;
            real size = 0, moved = 0;
#pragma unroll 4
            for (size_type u = 0; u < hidden; ++u) {
                size = larger(fabs(ends[place]), size);
                moved = larger(fabs(step[place]), moved);
                missed = larger(fabs(mismatch[place]), missed);
                ++place;
            }
            const real allowed = real(tolerance) * size;
            error = larger(moved / (allowed < real(least) ? real(least) : allowed), error);
            largest = larger(size, largest);
        }
        shared[0][threadIdx.x] = error;
        shared[1][threadIdx.x] = missed;
        shared[2][threadIdx.x] = largest;
        __syncthreads();
        for (int half = THREADS / 2; half > 0; half /= 2) {
            if (threadIdx.x < (unsigned)half)
                for (int k = 0; k < 3; ++k)
                    shared[k][threadIdx.x] = larger(shared[k][threadIdx.x + half], shared[k][threadIdx.x]);
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            const real size = shared[2][0];
            errors[item] = shared[0][0];
            errors[states * batch + item] = shared[1][0] / (size < real(least) ? real(least) : size);
        }
        __syncthreads();
    }
}

// ---- newton_advance ----

// The states that are assumed before chunks: the end of the chunk before, and what Newton's step makes of
// earlier chunks' corrections, where that is finite. That before the first chunk stays.
extern "C" __global__ void newton_advance(
    const real* __restrict__ ends,      // (chunks * batch | rows): the state behind each chunk
    const real* __restrict__ mismatch,  // (chunks, batch | rows)
    const real* __restrict__ step,      // (chunks, batch | rows)
    real* __restrict__ starts,          // (chunks * batch | rows) input and output
    size_type chunks, size_type rows, size_type batch)
{
    GRID_STRIDE(item, (chunks - 1) * batch * rows) {
        const real carried = step[item] - mismatch[item];
        starts[item + batch * rows] = ends[item] + (carried - carried == real(0) ? carried : real(0));
    }
}

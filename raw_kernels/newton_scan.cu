// Newton's step for the states at the boundaries of chunks, forward in time: step_k = mismatch_k +
// damping M_kᵀ step_{k-1}, where M_k is the product of the transposed Jacobians of chunk k, so that M_kᵀ
// says how the state behind the chunk moves with the one before it. Column j of M_k carries a power of two.
//
// Walk w is that of sample w % batch with set w / batch of the weights, and a state of all walks lies as
// (batch, states, sets, hidden). Maps lie as (sets, chunks, batch): those of a walk over all chunks at once, whose samples
// are pairs of chunk and sample. `maps` begins at a multiple of 16 bytes.

#include "prelude.cuh"
#include "boundaries.cuh"
#include "pieces.cuh"

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
                    found[pieces.places[element]] = next[element]
                        = way.taken(mine, pieces.added()[element], pieces.exponents()[element]);
            }
            pieces.leave(column + columns >= size);
        }
    }
    __syncthreads();
}

extern "C" __global__ void newton_scan(
    const real* __restrict__ maps,      // (sets, chunks, batch, states * hidden, states * hidden): by columns
    const int* __restrict__ exponents,  // (sets, chunks, batch, states * hidden)
    const real* __restrict__ mismatch,  // (chunks, batch | states, sets, hidden): the state behind each chunk
                                        // less the one assumed there
    real* __restrict__ step,            // (chunks, batch | states, sets, hidden) output only, what to add to
                                        // the assumed state behind each chunk
    size_type chunks, size_type states, size_type hidden, size_type sets, size_type batch, double damping)
{
    extern __shared__ __align__(16) real shared[];
    const size_type size = states * hidden, walks = sets * batch, plane = size * walks;
    const Forward way = {real(damping)};
    for (size_type w = blockIdx.x; w < walks; w += gridDim.x) {
        const size_type item = w / batch * chunks * batch + w % batch;
        const BoundaryScan walk = {maps + item * size * size, exponents + item * size, mismatch, step, chunks,
                                   batch, plane, plane, int(size)};
        const size_type start = start_of(int(states), w / batch, w % batch, int(hidden), sets);
        const int mine = min(int(threadIdx.x), int(size) - 1);
#define SCAN(N, FULL)           \
    scan_in_registers<N, FULL>( \
        walk, way, real(0), element_of(mine, start, int(hidden), sets), shared)
        if (size == 20) SCAN(20, true);
        else if (size < 20) SCAN(20, false);
        else if (size == 40) SCAN(40, true);
        else {
            Pieces pieces(walk, shared);
#pragma unroll 1
            for (int i = threadIdx.x; i < size; i += THREADS)
                pieces.places[i] = element_of(i, start, int(hidden), sets);
            scan_by_pieces(walk, way, pieces);
        }
    }
}

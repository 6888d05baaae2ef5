// Gradients at the boundaries of chunks: boundary_{k-1} = M_k boundary_k + offset_k from the last chunk on,
// where column j of M_k carries a power of two, which scales element j of what it is multiplied with: a
// column that grew past the range leaves a zero a zero.
//
// A block a sample, a thread a row. Rows of the next DEPTH maps are on their way to registers while one is
// used, to size 20 and for 40 in float32; for others a thread takes every blockDim-th row and reads it from
// memory. FULL says that size is N, which spares most of the arithmetic of addresses.

#include "prelude.cuh"

const int DEPTH = sizeof(real) == 4 ? 4 : 2;

// What a thread needs of one map: its row, its exponent, its offset.
template <int N>
struct Row {
    real entries[N], offset;
    int exponent;
};

template <int N, bool FULL>
__device__ inline void scan_in_registers(
    const real* __restrict__ maps, const int* __restrict__ exponents, const real* __restrict__ offsets,
    const real* __restrict__ last, real* __restrict__ boundary, size_type chunks, size_type size_,
    size_type batch, int affine, real* shared)
{
    const int size = FULL ? N : int(size_), row = threadIdx.x;
    const bool mine = row < size;
    for (size_type b = blockIdx.x; b < batch; b += gridDim.x) {
        Row<N> ring[DEPTH];
        const auto fetch = [&](Row<N>& to, size_type k) {
            if (k < 1 || !mine) return;
            const size_type map = (k - 1) * batch + b;
            const real* columns = maps + map * size * size + row;
#pragma unroll
            for (int j = 0; j < N; ++j)
                to.entries[j] = FULL || j < size ? columns[j * size] : real(0);
            to.exponent = exponents[map * size + row];
            to.offset = affine ? offsets[((k - 1) * size + row) * batch + b] : real(0);
        };
        real value = mine ? last[row * batch + b] : real(0);
        if (mine) boundary[((chunks - 1) * size + row) * batch + b] = value;
#pragma unroll
        for (int slot = 0; slot < DEPTH; ++slot) fetch(ring[slot], chunks - 1 - slot);
        int turn = 0;
        for (size_type k = chunks - 1; k >= 1;)
#pragma unroll
            for (int slot = 0; slot < DEPTH; ++slot) {
                if (k < 1) break;
                real* held = shared + turn * N;
                turn ^= 1;
                if (row < N) held[row] = mine ? real(ldexp(value, ring[slot].exponent)) : real(0);
                __syncthreads();
                real sums[4] = {mine ? ring[slot].offset : real(0), 0, 0, 0};
                if (mine) {
#pragma unroll
                    for (int j = 0; j < N; ++j) sums[j % 4] += ring[slot].entries[j] * held[j];
                    value = (sums[0] + sums[1]) + (sums[2] + sums[3]);
                    boundary[((k - 1) * size + row) * batch + b] = value;
                }
                fetch(ring[slot], k - DEPTH);
                --k;
            }
        __syncthreads();
    }
}

__device__ inline void scan_from_memory(
    const real* __restrict__ maps, const int* __restrict__ exponents, const real* __restrict__ offsets,
    const real* __restrict__ last, real* __restrict__ boundary, size_type chunks, size_type size,
    size_type batch, int affine, real* held)
{
    for (size_type b = blockIdx.x; b < batch; b += gridDim.x) {
        real* const values = held + size;
        for (size_type row = threadIdx.x; row < size; row += blockDim.x)
            boundary[((chunks - 1) * size + row) * batch + b] = values[row] = last[row * batch + b];
        for (size_type k = chunks - 1; k >= 1; --k) {
            const size_type map = (k - 1) * batch + b;
            for (size_type row = threadIdx.x; row < size; row += blockDim.x)
                held[row] = ldexp(values[row], exponents[map * size + row]);
            __syncthreads();
            for (size_type row = threadIdx.x; row < size; row += blockDim.x) {
                real sum = affine ? offsets[((k - 1) * size + row) * batch + b] : real(0);
                for (size_type j = 0; j < size; ++j) sum += maps[(map * size + j) * size + row] * held[j];
                boundary[((k - 1) * size + row) * batch + b] = values[row] = sum;
            }
            __syncthreads();
        }
    }
}

extern "C" __global__ void chunk_scan(
    const real* __restrict__ maps,      // (chunks - 1, batch, size, size): by columns, of chunk 1 on
    const int* __restrict__ exponents,  // (chunks - 1, batch, size)
    const real* __restrict__ offsets,   // (chunks - 1, size, batch) if affine else (0)
    const real* __restrict__ last,      // (size, batch): the gradient behind the last chunk
    real* __restrict__ boundary,        // (chunks, size, batch) output only, the gradient behind each chunk
    size_type chunks, size_type size, size_type batch, int affine)
{
    extern __shared__ __align__(16) real shared[];
#define SCAN(N, FULL)                                                                            \
    scan_in_registers<N, FULL>(maps, exponents, offsets, last, boundary, chunks, size, batch,     \
                               affine, shared)
    const bool narrow = sizeof(real) == 4;
    if (size == 20) SCAN(20, true);
    else if (size < 20) SCAN(20, false);
    else if (narrow && size == 40) SCAN(narrow ? 40 : 1, true);
    else scan_from_memory(maps, exponents, offsets, last, boundary, chunks, size, batch, affine, shared);
}

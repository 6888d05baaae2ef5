// Gradients at the boundaries of chunks: boundary_{k-1} = M_k boundary_k + offset_k from the last chunk on,
// where column j of M_k carries a power of two, which scales element j of what it is multiplied with: a
// column that grew past the range leaves a zero a zero.
//
// Walk w is that of sample w % batch with set w / batch of the weights, and a state of all walks lies as
// (batch, states, sets, hidden). `maps` begins at a multiple of 16 bytes.

#include "prelude.cuh"
#include "boundaries.cuh"
#include "pieces.cuh"

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
    for (int row = first; row < size; row += THREADS) values[row] = last[pieces.places[row]];
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
            found[pieces.places[row]] = values[row];
        }
    }
    __syncthreads();
}

extern "C" __global__ void chunk_scan(
    const real* __restrict__ maps,      // (chunks - 1, sets * batch, states * hidden, states * hidden): by
                                        // columns, of chunk 1 on
    const int* __restrict__ exponents,  // (chunks - 1, sets * batch, states * hidden)
    const real* __restrict__ offsets,   // (chunks - 1, batch | states, sets, hidden) if affine else (0)
    const real* __restrict__ last,      // (batch | states, sets, hidden): the gradient behind the last chunk
    real* __restrict__ boundary,        // (chunks, batch | states, sets, hidden) output only, the gradient
                                        // behind each chunk
    size_type chunks, size_type states, size_type hidden, size_type sets, size_type batch, int affine)
{
    extern __shared__ __align__(16) real shared[];
    const size_type size = states * hidden, walks = sets * batch, plane = size * walks;
    const size_type first = max(chunks - 2, size_type(0));
    const Backward way = {affine != 0};
    for (size_type w = blockIdx.x; w < walks; w += gridDim.x) {
        const size_type item = first * walks + w;
        // Without offsets something else is read in their place, and left out.
        const BoundaryScan walk = {maps + item * size * size, exponents + item * size,
                                   affine ? offsets + first * plane : last, boundary + first * plane, chunks - 1,
                                   -walks, affine ? -plane : 0, -plane, int(size)};
        real* const end = boundary + (chunks - 1) * plane;
        const size_type start = start_of(int(states), w / batch, w % batch, int(hidden), sets);
#define SCAN(N, FULL)                                                                      \
    do {                                                                                   \
        const int mine = min(int(threadIdx.x), int(size) - 1);                             \
        const size_type place = element_of(mine, start, int(hidden), sets);                \
        if (threadIdx.x < size) end[place] = last[place];                                  \
        if (chunks > 1) scan_in_registers<N, FULL>(walk, way, last[place], place, shared); \
    } while (false)
        if (size == 20) SCAN(20, true);
        else if (size < 20) SCAN(20, false);
        else if (size == 40) SCAN(40, true);
        else {
            Pieces pieces(walk, shared);
#pragma unroll 1
            for (int i = threadIdx.x; i < size; i += THREADS) {
                pieces.places[i] = element_of(i, start, int(hidden), sets);
                end[pieces.places[i]] = last[pieces.places[i]];
            }
            scan_by_pieces(walk, way, last, pieces);
        }
    }
}

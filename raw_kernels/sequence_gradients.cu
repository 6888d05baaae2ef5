// Partial sums of all gradients by the weights of one direction of a recurrent layer, by one read of its deltas, states
// and inputs: over steps and samples q, delta[q] times (the state before, the input, 1). Part p takes the pieces of
// `staged` steps and samples from p pieces / parts on; sequence_gradient_sums adds up the parts.
//
// A block takes a part. Its threads hold all sums, TILE x TILE each, and where that takes few of them, others take other
// q. STAGES pieces are on their way to shared memory.

#include "prelude.cuh"
#include "packs.cuh"
#include "copies.cuh"

const int TILE = 4, STAGES = 3, THREADS = 512;

struct __align__(16) Four {
    real values[TILE];
};

// The multiple of TILE that holds `count`.
__device__ __forceinline__ int padded(int count) { return (count + TILE - 1) / TILE * TILE; }

// Starts the copies of `count` rows of so many columns, `apart` there and `to_apart` here.
__device__ __forceinline__ void copy_rows(
    real* to, int to_apart, const real* from, size_type apart, int columns, int count)
{
    const unsigned long long places = (unsigned long long)to | (unsigned long long)from;
    if (columns % PACK == 0 && apart % PACK == 0 && places % 16 == 0) {
        const int packs = columns / PACK;
        for (int e = threadIdx.x; e < count * packs; e += blockDim.x) {
            const int row = e / packs, pack = e % packs;
            copy_ahead(reinterpret_cast<Pack*>(to + row * to_apart) + pack,
                       reinterpret_cast<const Pack*>(from + row * apart) + pack);
        }
        return;
    }
    for (int e = threadIdx.x; e < count * columns; e += blockDim.x) {
        const int row = e / columns, column = e % columns;
        copy_ahead(to + row * to_apart + column, from + row * apart + column);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) sequence_gradients(
    const real* __restrict__ delta,    // (steps, batch | delta_rows)
    const real* __restrict__ state,    // (steps, batch | state_rows): its first `hidden` rows
    const real* __restrict__ initial,  // (batch | state_rows): before step 0
    const real* __restrict__ values,   // (steps, batch | value_rows): its first `inputs` rows
    real* __restrict__ partial,        // (parts, (delta_rows + 3) // 4 * 4, (hidden + inputs + 4) // 4 * 4) output only
    size_type steps, size_type delta_rows, size_type state_rows, size_type hidden, size_type value_rows,
    size_type inputs, size_type batch, size_type parts, size_type staged, int reverse)
{
    extern __shared__ __align__(16) real shared[];
    const int H = int(hidden), F = int(inputs), rows = padded(int(delta_rows)), columns = padded(H + F + 1);
    const int across = columns / TILE, tiles = rows / TILE * across, all = (tiles + 31) / 32 * 32;
    const int turn = int(threadIdx.x) / all, turns = int(blockDim.x) / all, own = int(threadIdx.x) % all;
    const int row = min(own, tiles - 1) / across * TILE, column = min(own, tiles - 1) % across * TILE;
    const int piece = int(staged) * (rows + columns);
    const size_type count = steps * batch, pieces = (count + staged - 1) / staged;
    for (size_type part = blockIdx.x; part < parts; part += gridDim.x) {
        const size_type first = pieces * part / parts, last = pieces * (part + 1) / parts;
        __syncthreads();
        // Rows behind the deltas, and columns behind the inputs, of which the first is 1.
        for (int e = threadIdx.x; e < STAGES * int(staged); e += blockDim.x) {
            real* const deltas = shared + e / int(staged) * piece + e % int(staged) * rows;
            real* const factors = shared + e / int(staged) * piece + int(staged) * rows + e % int(staged) * columns;
            for (int i = int(delta_rows); i < rows; ++i) deltas[i] = real(0);
            for (int i = H + F; i < columns; ++i) factors[i] = i == H + F ? real(1) : real(0);
        }
        const auto fetch = [&](size_type number) {
            if (number < last) {
                const size_type q = number * staged;
                const int here = int(min(staged, count - q));
                real* const deltas = shared + int((number - first) % STAGES) * piece;
                real* const factors = deltas + int(staged) * rows;
                copy_rows(deltas, rows, delta + q * delta_rows, delta_rows, int(delta_rows), here);
                // Of these the first step's lie at one end, and the state before it elsewhere.
                const size_type inner = reverse ? count - batch - q : batch - q;
                const int cut = int(max(size_type(0), min(size_type(here), inner)));
                const real* const begin = reverse ? state + (q + batch) * state_rows : initial + q * state_rows;
                const real* const behind = reverse ? initial + (q + cut - (count - batch)) * state_rows
                                                   : state + (q + cut - batch) * state_rows;
                copy_rows(factors, columns, begin, state_rows, H, cut);
                copy_rows(factors + cut * columns, columns, behind, state_rows, H, here - cut);
                copy_rows(factors + H, columns, values + q * value_rows, value_rows, F, here);
            }
            end_group();
        };
        real sums[TILE][TILE] = {};
        for (int s = 0; s < STAGES - 1; ++s) fetch(first + s);
        for (size_type number = first; number < last; ++number) {
            wait_for_groups<STAGES - 2>();
            __syncthreads();
            fetch(number + STAGES - 1);
            const int here = int(min(staged, count - number * staged));
            const real* const deltas = shared + int((number - first) % STAGES) * piece + row;
            const real* const factors = shared + int((number - first) % STAGES) * piece + int(staged) * rows + column;
#pragma unroll 4
            for (int q = turn; q < here; q += turns) {
                const Four d = *reinterpret_cast<const Four*>(deltas + q * rows);
                const Four v = *reinterpret_cast<const Four*>(factors + q * columns);
#pragma unroll
                for (int i = 0; i < TILE; ++i)
#pragma unroll
                    for (int k = 0; k < TILE; ++k) sums[i][k] += d.values[i] * v.values[k];
            }
        }
        wait_for_groups<0>();
        // Turns' sums one after another, so that their order is always the same.
        for (int t = 0; t < turns; ++t) {
            __syncthreads();
            if (turn != t || own >= tiles) continue;
            real* const place = shared + own * (TILE * TILE);
#pragma unroll
            for (int i = 0; i < TILE; ++i)
#pragma unroll
                for (int k = 0; k < TILE; ++k) {
                    const real sum = t ? place[i * TILE + k] + sums[i][k] : sums[i][k];
                    if (t + 1 < turns) place[i * TILE + k] = sum;
                    else partial[(part * rows + row + i) * columns + column + k] = sum;
                }
        }
    }
}

// One step of all walks, each block a part: UNITS * GROUPS units of SAMPLES * TILES samples.
// A warp adds up the products of ROWS rows of weights with SAMPLES samples; each lane takes every 32nd pack of terms of
// all of them, and in the end one sum. A sum of several PARTS is shared out among as many warps. While a block adds up
// TERMS terms of a part, the next ones are copied to shared memory.

#include "copies.cuh"

const int LANES = 32, ROWS = UNITS * ROWS_OF_UNIT, BLOCK = LANES * GROUPS * TILES * PARTS;
const int BLOCK_UNITS = UNITS * GROUPS, BLOCK_SAMPLES = SAMPLES * TILES;

// Terms that a warp takes at a time; terms of a part that each of two buffers holds, and packs of them.
const int TURN = LANES * PACK, TERMS = STAGED_BYTES / 2 / int(sizeof(real)) / (BLOCK_SAMPLES * PARTS) / TURN * TURN;
const int TURNS = TERMS / TURN, PACKS = TERMS / PACK;
static_assert(TURNS > 0 && ROWS * SAMPLES <= LANES, "a buffer holds a turn, and a lane takes a sum");

struct Shared {
    Pack vectors[2][PARTS][BLOCK_SAMPLES][PACKS];
    real sums[GROUPS * TILES * PARTS][LANES];
};

// A block's part of a step: units and samples from these on.
struct Part {
    size_type sample;
    int unit, hidden, samples;

    __device__ __forceinline__ Part(size_type number, int hidden, size_type batch) : hidden(hidden)
    {
        const size_type bands = (hidden + BLOCK_UNITS - 1) / BLOCK_UNITS;
        unit = int(number % bands) * BLOCK_UNITS;
        sample = number / bands * BLOCK_SAMPLES;
        samples = int(min(size_type(BLOCK_SAMPLES), batch - sample));
    }

    // Unit 0 of the first sample in row `row` of an array (batch, rows, hidden).
    __device__ __forceinline__ size_type start(int rows, int row) const
    {
        return (sample * rows + row) * hidden;
    }
};

// How many parts there are.
__device__ __forceinline__ size_type part_count(int hidden, size_type batch)
{
    return ((hidden + BLOCK_UNITS - 1) / BLOCK_UNITS) * ((batch + BLOCK_SAMPLES - 1) / BLOCK_SAMPLES);
}

// What a thread does with the sums: one unit of one sample, or nothing.
struct Own {
    int unit, sample;
    bool takes;

    __device__ __forceinline__ explicit Own(const Part& part)
    {
        unit = threadIdx.x % BLOCK_UNITS;
        sample = threadIdx.x / BLOCK_UNITS;
        takes = part.unit + unit < part.hidden && sample < part.samples;
    }

    // Its element in row 0 of an array (batch, rows, hidden).
    __device__ __forceinline__ size_type element(const Part& part, int rows) const
    {
        return part.start(rows, 0) + sample * rows * part.hidden + part.unit + unit;
    }

    // The sum of row `row` of its unit.
    __device__ __forceinline__ real sum(const Shared& shared, int row) const
    {
        const int warp = unit / UNITS * TILES + sample / SAMPLES;
        const int place = (unit % UNITS * ROWS_OF_UNIT + row) * SAMPLES + sample % SAMPLES;
        real sum = 0;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) sum += shared.sums[warp * PARTS + part][place];
        return sum;
    }
};

// Leaves in each lane the sum over all lanes of the value of its number, as values[0]: lanes that are HALF apart share
// out their first 2 * HALF values, then those that are half as far.
template <int HALF>
__device__ __forceinline__ void share_out(real (&values)[LANES])
{
    const bool upper = threadIdx.x & HALF;
#pragma unroll
    for (int i = 0; i < HALF; ++i) {
        const real low = values[i], high = values[i + HALF];
        values[i] = (upper ? high : low) + __shfl_xor_sync(0xffffffffu, upper ? low : high, HALF);
    }
    if constexpr (HALF > 1) share_out<HALF / 2>(values);
}

// Term k and those that follow of a vector of `hidden` terms, zeros after it; `whole` says that it lies in whole packs.
__device__ __forceinline__ Pack read_pack(const real* vector, int k, int hidden, bool whole)
{
    if (whole && k < hidden) return *reinterpret_cast<const Pack*>(vector + k);
    Pack pack = {};
#pragma unroll
    for (int i = 0; i < PACK; ++i)
        if (k + i < hidden) pack.values[i] = vector[k + i];
    return pack;
}

// Fills `shared.sums`. weights(unit, row, part) is where the terms of a part of a unit's row begin, `hidden` of them;
// vectors(part) where those that they are multiplied with do, of the block's samples, which are `apart`.
template <class Weights, class Vectors>
__device__ __forceinline__ void add_up(
    const Part& at, Shared& shared, Weights weights, Vectors vectors, size_type apart)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, part = warp % PARTS;
    const int tile = warp / PARTS % TILES, first = warp / PARTS / TILES * UNITS;
    const real* rows[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
        rows[r] = weights(min(at.unit + first + r / ROWS_OF_UNIT, at.hidden - 1), r % ROWS_OF_UNIT, part);
    const bool whole = at.hidden % PACK == 0 && in_packs(rows[0]) && in_packs(vectors(0));
    const bool is_busy = tile * SAMPLES < at.samples;
    const auto stage = [&](int begin, int buffer) {
#pragma unroll
        for (int p = 0; p < PARTS; ++p)
#pragma unroll 2
            for (int e = threadIdx.x; e < BLOCK_SAMPLES * PACKS; e += BLOCK) {
                const int m = e / PACKS, k = begin + e % PACKS * PACK;
                Pack* const place = &shared.vectors[buffer][p][m][e % PACKS];
                const real* const vector = vectors(p) + m * apart;
                if (whole && k < at.hidden && m < at.samples)
                    copy_ahead(place, reinterpret_cast<const Pack*>(vector + k));
                else
                    *place = read_pack(vector, k, m < at.samples ? at.hidden : 0, false);
            }
        end_group();
    };
    real sums[LANES] = {};
    stage(0, 0);
    for (int begin = 0, buffer = 0; begin < at.hidden; begin += TERMS, buffer ^= 1) {
        Pack held[TURNS][ROWS];
        if (is_busy) {
#pragma unroll
            for (int i = 0; i < TURNS; ++i)
#pragma unroll
                for (int r = 0; r < ROWS; ++r)
                    held[i][r] = read_pack(rows[r], begin + i * TURN + lane * PACK, at.hidden, whole);
        }
        if (begin + TERMS < at.hidden) {
            stage(begin + TERMS, buffer ^ 1);
            wait_for_groups<1>();
        } else {
            wait_for_groups<0>();
        }
        __syncthreads();
        if (is_busy) {
#pragma unroll
            for (int i = 0; i < TURNS; ++i)
#pragma unroll
                for (int m = 0; m < SAMPLES; ++m) {
                    const Pack terms = shared.vectors[buffer][part][tile * SAMPLES + m][i * LANES + lane];
#pragma unroll
                    for (int r = 0; r < ROWS; ++r)
#pragma unroll
                        for (int k = 0; k < PACK; ++k)
                            sums[r * SAMPLES + m] += held[i][r].values[k] * terms.values[k];
                }
        }
        __syncthreads();
    }
    share_out<LANES / 2>(sums);
    shared.sums[warp][lane] = sums[0];
    __syncthreads();
}

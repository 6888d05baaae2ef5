// One step of all walks, each block a part: UNITS * GROUPS units of SAMPLES * TILES samples, with one set of weights.
// A warp adds up the products of ROWS rows of weights with SAMPLES samples; each lane takes every 32nd term of all
// of them, and in the end one sum. A sum of several PARTS is shared out among as many warps.

#include "copies.cuh"

const int LANES = 32, ROWS = UNITS * ROWS_OF_UNIT, BLOCK = LANES * GROUPS * TILES * PARTS;
const int BLOCK_UNITS = UNITS * GROUPS, BLOCK_SAMPLES = SAMPLES * TILES;

// Samples of a pack, terms of a part that lie in shared memory at a time, and the distance of
// packs of neighbouring samples, which is odd so that neighbouring samples lie in different banks.
const int QUAD = SAMPLES < PACK ? SAMPLES : PACK;
const int TERMS = STAGED_BYTES / int(sizeof(real)) / (BLOCK_SAMPLES * PARTS) / LANES * LANES, APART = TERMS * PARTS + 1;

struct __align__(QUAD * sizeof(real)) Quad {
    real values[QUAD];
};

struct Shared {
    Quad vectors[BLOCK_SAMPLES / QUAD * APART];
    real sums[GROUPS * TILES * PARTS][LANES];
};

// A block's part of a step: units and samples from these on.
struct Part {
    size_type set, sample, width;
    int unit, hidden, samples;

    __device__ __forceinline__ Part(size_type number, int hidden, size_type sets, size_type batch)
        : width(sets * hidden), hidden(hidden)
    {
        const size_type bands = (hidden + BLOCK_UNITS - 1) / BLOCK_UNITS;
        const size_type tiles = (batch + BLOCK_SAMPLES - 1) / BLOCK_SAMPLES;
        unit = int(number % bands) * BLOCK_UNITS;
        sample = number / bands % tiles * BLOCK_SAMPLES;
        set = number / bands / tiles;
        samples = int(min(size_type(BLOCK_SAMPLES), batch - sample));
    }

    // Unit 0 of the first sample in row `row` of an array (batch, rows, sets, hidden).
    __device__ __forceinline__ size_type start(int rows, int row) const
    {
        return (sample * rows + row) * width + set * hidden;
    }
};

// How many parts there are.
__device__ __forceinline__ size_type part_count(int hidden, size_type sets, size_type batch)
{
    return sets * ((hidden + BLOCK_UNITS - 1) / BLOCK_UNITS) * ((batch + BLOCK_SAMPLES - 1) / BLOCK_SAMPLES);
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

    // Its element in row 0 of an array (batch, rows, sets, hidden).
    __device__ __forceinline__ size_type element(const Part& part, int rows) const
    {
        return part.start(rows, 0) + sample * rows * part.width + part.unit + unit;
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
        rows[r] = weights(min(at.unit + first + r / ROWS_OF_UNIT, at.hidden - 1), r % ROWS_OF_UNIT, part) + lane;
    real sums[LANES] = {};
    for (int begin = 0; begin < at.hidden; begin += TERMS) {
        const int count = min(TERMS, at.hidden - begin), whole = (count + LANES - 1) / LANES * LANES;
        __syncthreads();
#pragma unroll
        for (int p = 0; p < PARTS; ++p)
#pragma unroll 4
            for (int e = threadIdx.x; e < whole * BLOCK_SAMPLES; e += BLOCK) {
                // Neighbouring lanes have the samples of a pack, then terms: all of a sector is used, and no bank twice.
                const int k = e / QUAD % whole, m = e / QUAD / whole * QUAD + e % QUAD;
                real* const place = &shared.vectors[m / QUAD * APART + p * TERMS + k].values[m % QUAD];
                if (k < count && m < at.samples) copy_ahead(place, vectors(p) + m * apart + begin + k);
                else *place = real(0);
            }
        end_group();
        wait_for_groups<0>();
        __syncthreads();
        if (tile * SAMPLES < at.samples) {
            const Quad* const own = shared.vectors + tile * (SAMPLES / QUAD) * APART + part * TERMS;
#pragma unroll 8
            for (int k = lane; k < whole; k += LANES) {
                real held[ROWS];
#pragma unroll
                for (int r = 0; r < ROWS; ++r) held[r] = k < count ? rows[r][begin + k - lane] : real(0);
#pragma unroll
                for (int q = 0; q < SAMPLES / QUAD; ++q) {
                    const Quad quad = own[q * APART + k];
#pragma unroll
                    for (int r = 0; r < ROWS; ++r)
#pragma unroll
                        for (int m = 0; m < QUAD; ++m)
                            sums[r * SAMPLES + q * QUAD + m] += held[r] * quad.values[m];
                }
            }
        }
    }
    share_out<LANES / 2>(sums);
    shared.sums[warp][lane] = sums[0];
    __syncthreads();
}

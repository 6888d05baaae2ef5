// Walks of the whole grid, whose blocks share out the hidden units: each holds the weights of UNITS units in shared memory.
// A step takes the samples BLOCK_SAMPLES at a time. A thread adds up the products of some units and samples, over some of
// the terms; the sums of all threads are then added through shared memory. The blocks wait for one another after a step.
//
// UNITS of a block; THREAD_UNITS and SAMPLES of a thread, lanes of a warp with other units (UNIT_LANES) and with other
// samples (SAMPLE_LANES); TERMS packs of terms that are staged at a time. A unit has SUMS sums, each of the products with
// INPUTS vectors of `hidden` terms.

#include "copies.cuh"
#include "grid.cuh"

const int WARPS = 8, BLOCK = 32 * WARPS, TERM_LANES = 32 / (UNIT_LANES * SAMPLE_LANES), PARTS = WARPS * TERM_LANES;
const int BLOCK_SAMPLES = SAMPLES * SAMPLE_LANES, PLACES = UNIT_LANES * THREAD_UNITS;
// Pairs of a unit and a sample that a thread goes on with.
const int PAIRS = (UNITS * BLOCK_SAMPLES + BLOCK - 1) / BLOCK;
// The distance of staged samples, in packs: odd, so that neighbouring ones lie in different banks.
const int APART = TERMS + 1;
static_assert(PLACES >= UNITS && TERMS % PARTS == 0 && TERMS % 2 == 0, "lanes have all units and terms");

// A block's shared memory: its weights; then, in turn, staged terms in two buffers, and sums of parts.
struct Memory {
    Pack *weights, *staged;
    int row, packs;  // packs of a vector, and of all terms of a sum

    __device__ __forceinline__ explicit Memory(int hidden)
    {
        extern __shared__ __align__(16) Pack begin[];
        row = (hidden + PACK - 1) / PACK;
        packs = INPUTS * row;
        weights = begin;
        staged = begin + packs * SUMS * UNITS;
    }

    __device__ __forceinline__ const Pack& weight(int pack, int sum, int unit) const
    {
        return weights[(pack * SUMS + sum) * UNITS + unit];
    }

    __device__ __forceinline__ Pack* stage(int turn, int sample) const
    {
        return staged + (turn * BLOCK_SAMPLES + sample) * APART;
    }

    __device__ __forceinline__ real& part(int part, int sum, int sample, int unit) const
    {
        return reinterpret_cast<real*>(staged)[((part * SUMS + sum) * BLOCK_SAMPLES + sample) * PLACES + unit];
    }

    // The sum `number` of a unit of the block and a sample of those that add_up has taken.
    __device__ __forceinline__ real sum(int number, int sample, int unit) const
    {
        real sum = 0;
#pragma unroll
        for (int p = 0; p < PARTS; ++p) sum += part(p, number, sample, unit);
        return sum;
    }
};

// A pair of a unit and a sample, of those of the block.
struct Pair {
    int unit, sample;
    bool is_there;

    __device__ __forceinline__ Pair(int number, int units, int samples)
    {
        const int pair = number * BLOCK + threadIdx.x;
        unit = pair % UNITS;
        sample = pair / UNITS;
        is_there = unit < units && sample < samples;
    }
};

// Fills the block's weights: weight(input, k, sum, unit) is term k of a vector's part of a unit's sum.
template <class Weight>
__device__ __forceinline__ void load_weights(const Memory& memory, int units, int hidden, Weight weight)
{
    const int count = memory.packs * SUMS * UNITS * PACK;
#pragma unroll 8
    for (int e = threadIdx.x; e < count; e += BLOCK) {
        const int unit = e / PACK % UNITS, sum = e / PACK / UNITS % SUMS, pack = e / PACK / UNITS / SUMS;
        const int k = pack % memory.row * PACK + e % PACK;
        const bool is_there = k < hidden && unit < units;
        reinterpret_cast<real*>(memory.weights)[e] = is_there ? weight(pack / memory.row, k, sum, unit) : real(0);
    }
}

// Adds up the products of the block's weights with the vectors of `samples` samples. vectors(input) is where the terms of
// the first sample begin, those of the next are `apart`; `whole` says that they lie in whole packs. Other blocks may have
// written them, so that nothing is read through the L1 cache.
template <class Vectors>
__device__ __forceinline__ void add_up(
    const Memory& memory, int hidden, int samples, Vectors vectors, size_type apart, bool whole)
{
    const int lane = threadIdx.x % 32, unit = lane % UNIT_LANES, first = lane / UNIT_LANES % SAMPLE_LANES;
    const int part = threadIdx.x / 32 * TERM_LANES + lane / UNIT_LANES / SAMPLE_LANES;
    const auto stage = [&](int begin, int turn) {
#pragma unroll 4
        for (int e = threadIdx.x; e < BLOCK_SAMPLES * TERMS; e += BLOCK) {
            const int sample = e / TERMS, pack = begin + e % TERMS;
            Pack* const place = memory.stage(turn, sample) + e % TERMS;
            if (sample >= samples || pack >= memory.packs) {
                *place = Pack{};
                continue;
            }
            const int k = pack % memory.row * PACK;
            const real* const from = vectors(pack / memory.row) + sample * apart + k;
            if (whole) {
                copy_ahead(place, reinterpret_cast<const Pack*>(from));
            } else {
#pragma unroll
                for (int i = 0; i < PACK; ++i) place->values[i] = k + i < hidden ? __ldcg(from + i) : real(0);
            }
        }
        end_group();
    };
    real sums[THREAD_UNITS][SUMS][SAMPLES] = {};
    __syncthreads();  // the sums of the call before were read
    stage(0, 0);
    for (int begin = 0, turn = 0; begin < memory.packs; begin += TERMS, turn ^= 1) {
        if (begin + TERMS < memory.packs) {
            stage(begin + TERMS, turn ^ 1);
            wait_for_groups<1>();
        } else {
            wait_for_groups<0>();
        }
        __syncthreads();
#pragma unroll 2
        for (int p = part; p < TERMS; p += PARTS) {
            if (begin + p >= memory.packs) break;
            Pack terms[SAMPLES];
#pragma unroll
            for (int s = 0; s < SAMPLES; ++s) terms[s] = memory.stage(turn, s * SAMPLE_LANES + first)[p];
#pragma unroll
            for (int u = 0; u < THREAD_UNITS; ++u)
#pragma unroll
                for (int n = 0; n < SUMS; ++n) {
                    const Pack weight = memory.weight(begin + p, n, min(u * UNIT_LANES + unit, UNITS - 1));
#pragma unroll
                    for (int s = 0; s < SAMPLES; ++s)
#pragma unroll
                        for (int i = 0; i < PACK; ++i) sums[u][n][s] += weight.values[i] * terms[s].values[i];
                }
        }
        __syncthreads();
    }
#pragma unroll
    for (int u = 0; u < THREAD_UNITS; ++u)
#pragma unroll
        for (int n = 0; n < SUMS; ++n)
#pragma unroll
            for (int s = 0; s < SAMPLES; ++s)
                memory.part(part, n, s * SAMPLE_LANES + first, u * UNIT_LANES + unit) = sums[u][n][s];
    __syncthreads();
}

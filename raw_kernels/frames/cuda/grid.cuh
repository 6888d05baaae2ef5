// Walks of the whole grid, whose blocks share out the hidden units: each goes on with UNITS of them. SHARES blocks add up
// together: each of them the terms of its share, for the units of all of them, and where there are several they exchange
// sums through `partial`. A block holds the weights of these units and terms in shared memory.
// A step takes the samples BLOCK_SAMPLES at a time. A thread adds up the products of some units and samples, over some of
// the terms; the sums of all threads are then added through shared memory. The blocks wait for one another after a step.
//
// THREAD_UNITS and SAMPLES of a thread, lanes of a warp with other units (UNIT_LANES) and with other samples
// (SAMPLE_LANES), warps with other samples (SAMPLE_WARPS); TERMS packs of terms that each of STAGES buffers holds. A unit
// has SUMS sums, each of the products with INPUTS vectors of `hidden` terms.

#include "copies.cuh"
#include "grid.cuh"

const int WARPS = 8, BLOCK = 32 * WARPS, TERM_LANES = 32 / (UNIT_LANES * SAMPLE_LANES);
const int PARTS = WARPS / SAMPLE_WARPS * TERM_LANES, WARP_SAMPLES = SAMPLES * SAMPLE_LANES;
const int BLOCK_SAMPLES = WARP_SAMPLES * SAMPLE_WARPS, ADDED = UNITS * SHARES;
// Pairs of a unit and a sample that a thread goes on with.
const int PAIRS = (UNITS * BLOCK_SAMPLES + BLOCK - 1) / BLOCK;
// The distance of staged samples, in packs, so that neighbouring lanes read different banks.
const int APART = TERMS + TERM_LANES;
static_assert(UNIT_LANES * THREAD_UNITS >= ADDED && TERMS % PARTS == 0, "lanes have all units and terms");
static_assert(BLOCK % TERMS == 0, "a thread stages the same terms of some samples");

// What a block adds up: the sums of units from `unit` on, of which it goes on with `units` from `own` on, over `packs`
// packs of terms from `pack` on.
struct Part {
    int unit, own, units, share, pack, packs, row;  // packs of a vector

    __device__ __forceinline__ explicit Part(int hidden)
    {
        share = blockIdx.x % SHARES;
        unit = blockIdx.x / SHARES * ADDED;
        own = unit + share * UNITS;
        units = max(0, min(UNITS, hidden - own));
        row = (hidden + PACK - 1) / PACK;
        const int each = (INPUTS * row + SHARES - 1) / SHARES;
        pack = share * each;
        packs = max(0, min(each, INPUTS * row - pack));
    }
};

// A block's shared memory: its weights; then, in turn, staged terms in STAGES buffers, and sums of parts.
struct Memory {
    Pack *weights, *staged;

    __device__ __forceinline__ explicit Memory(const Part& at)
    {
        extern __shared__ __align__(16) Pack begin[];
        weights = begin;
        staged = begin + at.packs * SUMS * ADDED;
    }

    __device__ __forceinline__ const Pack& weight(int pack, int sum, int unit) const
    {
        return weights[(pack * SUMS + sum) * ADDED + unit];
    }

    __device__ __forceinline__ Pack* stage(int buffer, int sample) const
    {
        return staged + (buffer * BLOCK_SAMPLES + sample) * APART;
    }

    __device__ __forceinline__ real& part(int part, int sum, int sample, int unit) const
    {
        const int row = (part * SUMS + sum) * THREAD_UNITS + unit / UNIT_LANES;
        return reinterpret_cast<real*>(staged)[(row * BLOCK_SAMPLES + sample) * UNIT_LANES + unit % UNIT_LANES];
    }

    // The sum `number` over the block's terms of a unit and a sample of those that add_up has taken.
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
__device__ __forceinline__ void load_weights(const Memory& memory, const Part& at, int hidden, Weight weight)
{
    const int count = at.packs * SUMS * ADDED * PACK;
#pragma unroll 8
    for (int e = threadIdx.x; e < count; e += BLOCK) {
        const int unit = at.unit + e / PACK % ADDED, sum = e / PACK / ADDED % SUMS;
        const int pack = at.pack + e / PACK / ADDED / SUMS, k = pack % at.row * PACK + e % PACK;
        const bool is_there = k < hidden && unit < hidden;
        reinterpret_cast<real*>(memory.weights)[e] = is_there ? weight(pack / at.row, k, sum, unit) : real(0);
    }
}

// Adds up the products of the block's weights with the vectors of `samples` samples. vectors(input) is where the terms of
// the first sample begin, those of the next are `apart`; `whole` says that they lie in whole packs. Other blocks may have
// written them, so that nothing is read through the L1 cache.
template <class Vectors>
__device__ __forceinline__ void add_up(
    const Memory& memory, const Part& at, int hidden, int samples, Vectors vectors, size_type apart, bool whole)
{
    // Neighbours share a sample, and lanes that are two apart a unit: a read of shared memory then serves half a warp at a
    // time, and else a quarter.
    constexpr int PAIR = UNIT_LANES > 1 && SAMPLE_LANES > 1 ? 2 : 1;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rest = lane / (PAIR * PAIR);
    const int unit = PAIR == 1 ? lane % UNIT_LANES : lane % PAIR + rest % (UNIT_LANES / PAIR) * PAIR;
    const int beside = PAIR == 1 ? lane / UNIT_LANES % SAMPLE_LANES
                                 : lane / PAIR % PAIR + rest / (UNIT_LANES / PAIR) % (SAMPLE_LANES / PAIR) * PAIR;
    const int first = warp % SAMPLE_WARPS * WARP_SAMPLES + beside;
    const int part = warp / SAMPLE_WARPS * TERM_LANES + lane / (UNIT_LANES * SAMPLE_LANES);
    const auto stage = [&](int begin, int buffer) {
        const int column = threadIdx.x % TERMS, pack = at.pack + begin + column;
        if (begin < at.packs) {
            const int k = pack % at.row * PACK;
            const bool is_there = begin + column < at.packs;
            const real* const vector = vectors(is_there ? pack / at.row : 0) + k;
#pragma unroll 4
            for (int sample = threadIdx.x / TERMS; sample < BLOCK_SAMPLES; sample += BLOCK / TERMS) {
                Pack* const place = memory.stage(buffer, sample) + column;
                const real* const from = vector + sample * apart;
                if (!is_there || sample >= samples) {
                    *place = Pack{};
                } else if (whole) {
                    copy_ahead(place, reinterpret_cast<const Pack*>(from));
                } else {
#pragma unroll
                    for (int i = 0; i < PACK; ++i) place->values[i] = k + i < hidden ? __ldcg(from + i) : real(0);
                }
            }
        }
        end_group();
    };
    real sums[THREAD_UNITS][SUMS][SAMPLES] = {};
    __syncthreads();  // the sums of the call before were read
#pragma unroll
    for (int n = 0; n < STAGES - 1; ++n) stage(n * TERMS, n);
    int buffer = 0;
#pragma unroll 1
    for (int begin = 0; begin < at.packs; begin += TERMS) {
        wait_for_groups<STAGES - 2>();
        __syncthreads();
        stage(begin + (STAGES - 1) * TERMS, buffer ? buffer - 1 : STAGES - 1);
#pragma unroll 2
        for (int p = part; p < TERMS; p += PARTS) {
            if (begin + p >= at.packs) break;
            Pack terms[SAMPLES];
#pragma unroll
            for (int s = 0; s < SAMPLES; ++s) terms[s] = memory.stage(buffer, s * SAMPLE_LANES + first)[p];
#pragma unroll
            for (int u = 0; u < THREAD_UNITS; ++u)
#pragma unroll
                for (int n = 0; n < SUMS; ++n) {
                    const Pack weight = memory.weight(begin + p, n, min(u * UNIT_LANES + unit, ADDED - 1));
#pragma unroll
                    for (int s = 0; s < SAMPLES; ++s)
#pragma unroll
                        for (int i = 0; i < PACK; ++i) sums[u][n][s] += weight.values[i] * terms[s].values[i];
                }
        }
        buffer = buffer == STAGES - 1 ? 0 : buffer + 1;
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < THREAD_UNITS; ++u)
#pragma unroll
        for (int n = 0; n < SUMS; ++n)
#pragma unroll
            for (int s = 0; s < SAMPLES; ++s)
                memory.part(part, n, s * SAMPLE_LANES + first, u * UNIT_LANES + unit) = sums[u][n][s];
    __syncthreads();
}

// The sums of the walk over all terms, after add_up: `partial` is (SHARES, batch, SUMS, hidden).
struct Sums {
    const Memory& memory;
    const Part& at;
    real* partial;
    int hidden;
    size_type batch;

    // Where a share's sum `number` of a unit and sample of the batch is.
    __device__ __forceinline__ real& place(int share, size_type sample, int number, int unit) const
    {
        return partial[((share * batch + sample) * SUMS + number) * hidden + unit];
    }

    // Hands the sums of `samples` samples from `begin` on to the blocks that go on with them.
    __device__ __forceinline__ void hand_on(size_type begin, int samples, GridBarrier& barrier) const
    {
        if (SHARES == 1) return;
        for (int e = threadIdx.x; e < ADDED * samples; e += BLOCK) {
            const int unit = e % ADDED, sample = e / ADDED;
            if (at.unit + unit >= hidden) continue;
#pragma unroll
            for (int n = 0; n < SUMS; ++n)
                place(at.share, begin + sample, n, at.unit + unit) = memory.sum(n, sample, unit);
        }
        barrier.wait();
    }

    // The sum `number` of one of the block's own units and a sample, of those from `begin` on.
    __device__ __forceinline__ real operator()(int number, size_type begin, int sample, int unit) const
    {
        if (SHARES == 1) return memory.sum(number, sample, unit);
        real sum = 0;
#pragma unroll
        for (int share = 0; share < SHARES; ++share) sum += __ldcg(&place(share, begin + sample, number, at.own + unit));
        return sum;
    }
};

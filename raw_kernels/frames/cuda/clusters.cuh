// Walks of a cluster of blocks, which share out the units: each block holds the weights of its own, and writes what a step
// makes of them into the shared memory of all, in turns between two buffers, so that a step takes one barrier of the
// cluster. No block waits for one of another cluster.
//
// WIDTH, UNITS, LANES, WALKS, BEYOND, CLUSTER are the layout: a walk of WIDTH units, CLUSTER blocks of UNITS places of
// LANES threads each, and WALKS samples that go together. A thread goes on with the sums of one unit and sample at most.

#include "clusters.cuh"

constexpr int BLOCK = UNITS * LANES;
#include "frames/cuda/rows.cuh"
#include "frames/cuda/stage.cuh"

// Units of a place, and samples that it adds them up for; units of a block.
constexpr int OWN = (WIDTH + CLUSTER * UNITS - 1) / (CLUSTER * UNITS), SAMPLES = WALKS, BLOCK_UNITS = OWN * UNITS;
constexpr int BESIDE = 1;
constexpr bool ALL_STAY = true;
#include "frames/cuda/weights.cuh"
static_assert(PAIRS <= LANES && BLOCK % 32 == 0, "a thread has a unit and sample at most");

// Elements of a vector that is handed on: those that threads multiply with, and the units of all blocks.
constexpr int VECTOR = HELD > CLUSTER * BLOCK_UNITS ? HELD : CLUSTER * BLOCK_UNITS;

// Steps that are fetched ahead, as many as there are buffers.
constexpr int AHEAD = 2;

// Samples that go together, `count` of them.
struct Group {
    size_type first;
    int count;

    __device__ __forceinline__ Group(size_type number, size_type batch)
    {
        first = number * SAMPLES;
        count = int(min(size_type(SAMPLES), batch - first));
    }

    __device__ __forceinline__ Walk walk(int sample, int hidden) const
    {
        return {first + min(sample, count - 1), hidden};
    }
};

// A thread's place: the first unit of its place and its lane there; its own unit, and sample of a group; whether it goes
// on with that one's sums.
struct Place {
    int first, lane, unit, sample;
    bool owns;

    __device__ __forceinline__ Place(int hidden, const Group& group)
    {
        lane = lane_of(threadIdx.x);
        const int pair = lane / ALIKE;
        first = blockIdx.x % CLUSTER * BLOCK_UNITS + place_of(threadIdx.x) * OWN;
        unit = first + pair / SAMPLES;
        sample = pair % SAMPLES;
        owns = lane % ALIKE == 0 && pair < PAIRS && unit < hidden && sample < group.count;
        unit = min(unit, hidden - 1);
    }
};

// What is handed on, in the block's shared memory behind its weights: two buffers of vectors.
__device__ __forceinline__ real* buffers()
{
    extern __shared__ __align__(16) Pack behind[];
    return reinterpret_cast<real*>(behind + BEYOND * BLOCK);
}

// A pack that a thread hands on: its number from the buffers' begin on, the block it goes to, and whether it is there.
struct Handed {
    int pack, to;
    bool is_there;

    // Of this block's units of `vectors` vectors, from `first` on, those of number `number` for all other blocks.
    __device__ __forceinline__ Handed(int number, int vectors, int first)
    {
        constexpr int OF_BLOCK = BLOCK_UNITS / PACK;
        static_assert(BLOCK_UNITS % PACK == 0, "a block has whole packs");
        const int all = vectors * OF_BLOCK, rank = blockIdx.x % CLUSTER;
        is_there = number < (CLUSTER - 1) * all;
        pack = (first + number % all / OF_BLOCK) * (VECTOR / PACK) + rank * OF_BLOCK + number % OF_BLOCK;
        to = (rank + 1 + number / all) % CLUSTER;
    }
};

// Hands on to the other blocks of the cluster what this one's threads have put at its units of VECTORS vectors, from
// `first` on. All is read before it is written, so that one wait serves all of it.
template <int VECTORS>
__device__ __forceinline__ void hand_on(const Shared& vectors, int first)
{
    constexpr int TURNS = ((CLUSTER - 1) * VECTORS * BLOCK_UNITS / PACK + BLOCK - 1) / BLOCK;
    __syncthreads();
    Pack packs[TURNS];
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn)
        packs[turn] = vectors.read(Handed(turn * BLOCK + threadIdx.x, VECTORS, first).pack);
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const Handed one(turn * BLOCK + threadIdx.x, VECTORS, first);
        if (one.is_there) vectors.put(one.pack, one.to, packs[turn]);
    }
}

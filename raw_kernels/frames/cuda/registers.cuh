// Walks whose threads hold weights. A step hands a state on through shared memory, in turns between two buffers, so
// that it takes one barrier.
//
// WIDTH, UNITS, LANES, WALKS, BEYOND are the layout: a walk of WIDTH units has UNITS places of LANES threads each. The
// threads of a place share out the terms of its units' sums, of one unit, or of several where a whole block walks
// together; in the end each thread has the sums of one unit at most. Of the weights that a thread multiplies with,
// the last BEYOND packs lie in shared memory, the others in its registers. A walk within a warp waits for no other.

constexpr int THREADS = UNITS * LANES, BLOCK = WALKS * THREADS;
#include "frames/cuda/rows.cuh"
#include "frames/cuda/stage.cuh"

// Walks of a warp, which lie side by side: neighbouring threads are neighbouring samples.
constexpr int BESIDE = THREADS < 32 ? 32 / THREADS : 1;

// Units of a place, and samples that it adds them up for.
constexpr int OWN = (WIDTH + UNITS - 1) / UNITS, SAMPLES = 1;
constexpr bool ALL_STAY = OWN > 1;
static_assert(OWN <= LANES && (OWN == 1 || (THREADS % 32 == 0 && WALKS == 1)), "a thread has a unit at most");
#include "frames/cuda/weights.cuh"

// Steps that are fetched ahead: as long as a load takes, in as much as there is. One step with several units a place
// takes longer than a load where weights lie in shared memory, and two elsewhere.
__device__ constexpr int steps_ahead(int rows)
{
    if (OWN > 1) return COPIES && BEYOND == 0 ? 2 : 1;
    return G == 1 ? 8 : COPIES && rows * BLOCK * int(sizeof(real)) <= 8192 ? 4 : 2;
}

// A thread's place: its walk in the block, the first unit of its place and its lane there; its own unit, and whether
// it is the thread that goes on with that one's sums.
struct Place {
    int walk, first, lane, unit;
    bool owns;

    __device__ __forceinline__ explicit Place(int hidden)
    {
        const int thread = threadIdx.x, rank = THREADS < 32 ? thread % 32 / BESIDE : thread % THREADS;
        walk = THREADS < 32 ? thread / 32 * BESIDE + thread % BESIDE : same_in_warp(thread / THREADS);
        // The plain division keeps float64 walks of 128 RNN units from spilling.
        first = (BRAIDED == 1 ? rank / LANES : place_of(rank)) * OWN;
        lane = BRAIDED == 1 ? rank % LANES : lane_of(rank);
        unit = first + (OWN > 1 ? lane / ALIKE : 0);
        owns = lane % ALIKE == 0 && (OWN == 1 || (lane / ALIKE < OWN && unit < hidden));
        if (OWN > 1) unit = min(unit, hidden - 1);
    }

    // Whether no thread that this one exchanges with has a unit.
    __device__ __forceinline__ bool is_beyond(int hidden) const
    {
        return OWN == 1 ? unit >= hidden : int(threadIdx.x) / 32 * (32 / LANES) * OWN >= hidden;
    }

    // Zeros behind the units of `count` states, which nothing writes later: only a barrier that both come to shows
    // them to the walk's other threads.
    __device__ __forceinline__ void clear(real* states, int count, int hidden) const
    {
        const int rank = first / OWN * LANES + lane;
        for (int k = 0; k < count; ++k)
            for (int e = hidden + rank; e < HELD; e += THREADS) states[k * HELD + e] = real(0);
    }

    // The threads of this warp that belong to the walk.
    __device__ __forceinline__ unsigned mask() const
    {
        return BESIDE == 1 ? 0xffffffffu : (BESIDE == 2 ? 0x55555555u : 0x11111111u) << walk % BESIDE;
    }

    // Waits for the walk's threads.
    __device__ __forceinline__ void wait() const
    {
        if (THREADS > 32) __syncthreads();
        else if (BESIDE == 1) __syncwarp();
        else __syncwarp(mask());
    }
};

// Which of `count` walks a block's walk is first: neighbours share a block, but where there are as many blocks as
// walks each has one, and multiprocessors share out what reads shared memory.
__device__ __forceinline__ size_type first_of(int walk, size_type count)
{
    return gridDim.x >= count ? (size_type)walk * gridDim.x + blockIdx.x : (size_type)blockIdx.x * WALKS + walk;
}

// The one behind it. A place of several units has no register for it: there each walk wants a block of its own.
__device__ __forceinline__ size_type next_of(size_type number, size_type count)
{
    return OWN > 1 ? count : number + (size_type)gridDim.x * WALKS;
}

// More steps than a stage holds.
const int PLENTY = 1 << 30;

// Calls step(a, turn, left) for each of `count` steps, a being the step's place in a stage of AHEAD, `turn` the buffer
// that it reads, 0 or 1 in turns, and `left` the steps that are left with it, or PLENTY.
template <int AHEAD, class Step>
__device__ __forceinline__ void for_each_step(int count, Step step)
{
    int left = count;
    if (OWN > 1) {
#pragma unroll 1
        for (int turn = 0; left > 0; --left, turn ^= 1) step(AHEAD > 1 ? turn : 0, turn, left);
        return;
    }
#pragma unroll 1
    for (; left > 2 * AHEAD; left -= AHEAD)
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) step(a, a % 2, PLENTY);
#pragma unroll 1
    for (; left > 0; left -= AHEAD)
#pragma unroll
        for (int a = 0; a < AHEAD; ++a)
            if (a < left) step(a, a % 2, left - a);
}

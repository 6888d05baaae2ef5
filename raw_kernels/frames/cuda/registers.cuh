// Walks whose threads hold weights in registers. A step hands a state on through shared memory, in turns
// between two buffers, so that it takes one barrier.
//
// WIDTH, UNITS, LANES, WALKS are the layout: a walk has UNITS * LANES threads, LANES of them a unit, whose
// registers hold the weights of WIDTH units. A walk within a warp waits for no other.

constexpr int THREADS = UNITS * LANES, BLOCK = WALKS * THREADS;
#include "frames/cuda/stage.cuh"

// Walks of a warp, which lie side by side: neighbouring threads are neighbouring samples.
constexpr int BESIDE = THREADS < 32 ? 32 / THREADS : 1;
// 16-byte packs of a state that a thread multiplies with, every LANES-th of them; elements of a state.
constexpr int PACKS = (WIDTH + PACK * LANES - 1) / (PACK * LANES), HELD = PACKS * PACK * LANES;

// Steps that are fetched ahead: as long as a load takes, in as much as there is.
__device__ constexpr int steps_ahead(int rows)
{
    return G == 1 ? 8 : COPIES && rows * BLOCK * int(sizeof(real)) <= 8192 ? 4 : 2;
}

// A number that is the same in a warp's threads, so that the compiler knows it is, where a warp has one walk.
__device__ __forceinline__ int same_in_warp(int value)
{
    return BESIDE == 1 ? __shfl_sync(0xffffffffu, value, 0) : value;
}

// A thread's place: its walk in the block, its unit, its lane of the unit.
struct Place {
    int walk, unit, lane;

    __device__ __forceinline__ Place()
    {
        const int thread = threadIdx.x, rank = THREADS < 32 ? thread % 32 / BESIDE : thread % THREADS;
        walk = THREADS < 32 ? thread / 32 * BESIDE + thread % BESIDE : same_in_warp(thread / THREADS);
        unit = rank / LANES;
        lane = rank % LANES;
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

    // The sum over a unit's lanes, in each of them.
    __device__ __forceinline__ real sum_of_lanes(real value) const
    {
#pragma unroll
        for (int apart = 1; apart < LANES; apart *= 2)
            value += __shfl_xor_sync(mask(), value, apart * BESIDE);
        return value;
    }
};

// Which of `count` walks a block's walk is first: neighbours share a block, but where there are as many blocks as
// walks each has one, and multiprocessors share out what reads shared memory.
__device__ __forceinline__ size_type first_of(int walk, size_type count)
{
    return gridDim.x >= count ? (size_type)walk * gridDim.x + blockIdx.x : (size_type)blockIdx.x * WALKS + walk;
}

// What one unit's sums take of W_hh: for each recurrent gate a row, or a column.
struct Weights {
    real held[R][PACKS * PACK];

    // From matrices of a recurrent gate each, `square` apart: elements `apart` from one to the next, zeros behind the
    // last.
    __device__ __forceinline__ void load(
        const real* __restrict__ first, size_type square, int apart, int hidden, int lane)
    {
#pragma unroll
        for (int g = 0; g < R; ++g)
#pragma unroll
            for (int i = 0; i < PACKS * PACK; ++i) {
                const int k = (i / PACK * LANES + lane) * PACK + i % PACK;
                held[g][i] = k < hidden ? first[g * square + k * apart] : real(0);
            }
    }

    // Adds recurrent gate g's products with the state at `state + g * aside` to sums[g % SUMS].
    template <int SUMS>
    __device__ __forceinline__ void multiply(
        const real* state, int aside, int lane, real (&sums)[SUMS]) const
    {
        // Enough sums at once that none waits for the one before.
        constexpr int EACH = R / SUMS, PARTS = R >= 4 ? EACH : R > 1 ? 2 * EACH : 4;
        const Pack* const packs = reinterpret_cast<const Pack*>(state) + lane;
        real parts[SUMS][PARTS];
#pragma unroll
        for (int sum = 0; sum < SUMS; ++sum)
#pragma unroll
            for (int part = 0; part < PARTS; ++part) parts[sum][part] = part ? real(0) : sums[sum];
#pragma unroll
        for (int p = 0; p < PACKS; ++p)
#pragma unroll
            for (int g = 0; g < R; ++g) {
                const Pack pack = packs[g * aside / PACK + p * LANES];
#pragma unroll
                for (int k = 0; k < PACK; ++k)
                    parts[g % SUMS][(g / SUMS + (p * PACK + k) * EACH) % PARTS] +=
                        held[g][p * PACK + k] * pack.values[k];
            }
#pragma unroll
        for (int sum = 0; sum < SUMS; ++sum) {
#pragma unroll
            for (int apart = 1; apart < PARTS; apart *= 2)
#pragma unroll
                for (int part = 0; part + apart < PARTS; part += 2 * apart)
                    parts[sum][part] += parts[sum][part + apart];
            sums[sum] = parts[sum][0];
        }
    }
};

// More steps than a stage holds.
const int PLENTY = 1 << 30;

// Calls step(a, left) for each of `count` steps, a being the step's place in a stage of AHEAD and `left` the steps
// that are left with it, or PLENTY.
template <int AHEAD, class Step>
__device__ __forceinline__ void for_each_step(int count, Step step)
{
    int left = count;
#pragma unroll 1
    for (; left > 2 * AHEAD; left -= AHEAD)
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) step(a, PLENTY);
#pragma unroll 1
    for (; left > 0; left -= AHEAD)
#pragma unroll
        for (int a = 0; a < AHEAD; ++a)
            if (a < left) step(a, left - a);
}

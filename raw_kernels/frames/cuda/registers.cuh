// Walks whose threads hold weights. A step hands a state on through shared memory, in turns between two buffers, so
// that it takes one barrier.
//
// WIDTH, UNITS, LANES, WALKS, BEYOND are the layout: a walk of WIDTH units has UNITS places of LANES threads each. The
// threads of a place share out the terms of its units' sums, of one unit, or of several where a whole block walks
// together; in the end each thread has the sums of one unit at most. Of the weights that a thread multiplies with,
// the last BEYOND packs lie in shared memory, the others in its registers. A walk within a warp waits for no other.

constexpr int THREADS = UNITS * LANES, BLOCK = WALKS * THREADS;
#include "frames/cuda/stage.cuh"

// Walks of a warp, which lie side by side: neighbouring threads are neighbouring samples.
constexpr int BESIDE = THREADS < 32 ? 32 / THREADS : 1;

// The power of two that holds `count`.
__device__ constexpr int power_of_two(int count)
{
    int power = 1;
    while (power < count) power *= 2;
    return power;
}

// Units of a place, and among how many of its lanes they are shared out.
constexpr int OWN = (WIDTH + UNITS - 1) / UNITS, SHARES = power_of_two(OWN), ALIKE = LANES / SHARES;
static_assert(OWN <= LANES && (OWN == 1 || (THREADS % 32 == 0 && WALKS == 1)), "a thread has a unit at most");
// 16-byte packs of a state that a thread multiplies with, every LANES-th of them; elements of a state.
constexpr int PACKS = (WIDTH + PACK * LANES - 1) / (PACK * LANES), HELD = PACKS * PACK * LANES;

// Steps that are fetched ahead: as long as a load takes, in as much as there is. One step with several units a place
// takes longer than a load.
__device__ constexpr int steps_ahead(int rows)
{
    return OWN > 1 ? 1 : G == 1 ? 8 : COPIES && rows * BLOCK * int(sizeof(real)) <= 8192 ? 4 : 2;
}

// A number that is the same in a warp's threads, so that the compiler knows it is, where a warp has one walk.
__device__ __forceinline__ int same_in_warp(int value)
{
    return BESIDE == 1 ? __shfl_sync(0xffffffffu, value, 0) : value;
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
        first = rank / LANES * OWN;
        lane = rank % LANES;
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

    // Leaves in values[0] the sums over the place's lanes of its own unit's values, of COUNT units: lanes that are
    // APART share out what is left of them, or have the same sums.
    template <int APART = LANES / 2, int COUNT = SHARES, int SUMS>
    __device__ __forceinline__ void share_out(real (&values)[SHARES][SUMS]) const
    {
        if constexpr (APART > 0) {
            constexpr int HALF = COUNT / 2;
            const bool upper = lane & APART;
#pragma unroll
            for (int sum = 0; sum < SUMS; ++sum) {
                if constexpr (HALF == 0) {
                    values[0][sum] += __shfl_xor_sync(mask(), values[0][sum], APART * BESIDE);
                } else {
#pragma unroll
                    for (int i = 0; i < HALF; ++i) {
                        const real low = values[i][sum], high = values[i + HALF][sum];
                        const real other = __shfl_xor_sync(mask(), upper ? low : high, APART * BESIDE);
                        values[i][sum] = (upper ? high : low) + other;
                    }
                }
            }
            share_out<APART / 2, (HALF ? HALF : 1)>(values);
        }
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

// What the sums of a place's units take of W_hh: for each unit and recurrent gate a row, or a column, of which a thread has
// every LANES-th pack.
struct Weights {
    static constexpr int ALL = OWN * R * PACKS, RESIDENT = ALL - BEYOND;

    Pack held[RESIDENT];
    Pack* beyond;

    __device__ __forceinline__ Weights()
    {
        extern __shared__ __align__(16) Pack behind[];
        beyond = behind + threadIdx.x;
    }

    // From matrices of a recurrent gate each, `square` apart, whose units are `by_unit` apart and terms `by_term`: zeros behind
    // the last unit and term.
    __device__ __forceinline__ void load(
        const real* __restrict__ from, size_type square, int by_unit, int by_term, int hidden, const Place& place)
    {
        const auto pack_of = [&](int number) {
            // Not known to the compiler, which else keeps the offsets of all rows in registers, and spills.
            if (OWN > 1) asm volatile("" : "+r"(by_unit), "+r"(hidden));
            const int unit = place.first + number / PACKS / R, term = (number % PACKS * LANES + place.lane) * PACK;
            const real* const row = from + number / PACKS % R * square + unit * by_unit;
            Pack pack;
#pragma unroll
            for (int k = 0; k < PACK; ++k)
                pack.values[k] = (OWN == 1 || unit < hidden) && term + k < hidden ? row[(term + k) * by_term] : real(0);
            return pack;
        };
#pragma unroll
        for (int number = 0; number < RESIDENT; ++number) held[number] = pack_of(number);
#pragma unroll 1
        for (int number = RESIDENT; number < ALL; ++number) beyond[(number - RESIDENT) * BLOCK] = pack_of(number);
    }

    __device__ __forceinline__ Pack operator[](int number) const
    {
        return number < RESIDENT ? held[number] : beyond[(number - RESIDENT) * BLOCK];
    }

    // Adds each unit's products of recurrent gate g with the state at `state + g * aside` to its sums[g % SUMS].
    template <int SUMS>
    __device__ __forceinline__ void multiply(
        const real* state, int aside, int lane, real (&sums)[SHARES][SUMS]) const
    {
        // Enough sums at once that none waits for the one before.
        constexpr int EACH = R / SUMS, PARTS = OWN > 1 ? 1 : R >= 4 ? EACH : R > 1 ? 2 * EACH : 4;
        const Pack* const packs = reinterpret_cast<const Pack*>(state) + lane;
        real parts[OWN][SUMS][PARTS];
#pragma unroll
        for (int own = 0; own < OWN; ++own)
#pragma unroll
            for (int sum = 0; sum < SUMS; ++sum)
#pragma unroll
                for (int part = 0; part < PARTS; ++part) parts[own][sum][part] = part ? real(0) : sums[own][sum];
#pragma unroll
        for (int p = 0; p < PACKS; ++p)
#pragma unroll
            for (int g = 0; g < R; ++g) {
                const Pack pack = packs[g * aside / PACK + p * LANES];
#pragma unroll
                for (int own = 0; own < OWN; ++own) {
                    const Pack weights = (*this)[(own * R + g) * PACKS + p];
#pragma unroll
                    for (int k = 0; k < PACK; ++k)
                        parts[own][g % SUMS][(g / SUMS + (p * PACK + k) * EACH) % PARTS] +=
                            weights.values[k] * pack.values[k];
                }
            }
#pragma unroll
        for (int own = 0; own < OWN; ++own)
#pragma unroll
            for (int sum = 0; sum < SUMS; ++sum) {
#pragma unroll
                for (int apart = 1; apart < PARTS; apart *= 2)
#pragma unroll
                    for (int part = 0; part + apart < PARTS; part += 2 * apart)
                        parts[own][sum][part] += parts[own][sum][part + apart];
                sums[own][sum] = parts[own][sum][0];
            }
    }
};

// More steps than a stage holds.
const int PLENTY = 1 << 30;

// Calls step(a, turn, left) for each of `count` steps, a being the step's place in a stage of AHEAD, `turn` the buffer
// that it reads, 0 or 1 in turns, and `left` the steps that are left with it, or PLENTY.
template <int AHEAD, class Step>
__device__ __forceinline__ void for_each_step(int count, Step step)
{
    int left = count;
    if (AHEAD == 1) {
#pragma unroll 1
        for (int turn = 0; left > 0; --left, turn ^= 1) step(0, turn, left);
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

// Weights that threads hold, and their products. Of a walk's WIDTH units a place of LANES threads, of walks that lie BESIDE
// one another, adds up the sums of OWN, of SAMPLES samples each: its threads share out the terms, and in the end each has the
// sums of one unit and sample at most. Of the weights that one of the block's BLOCK threads multiplies with, the last
// BEYOND packs lie in shared memory, the others in its registers. ALL_STAY: whether threads without a unit are there.

// Places whose lanes alternate: a read of shared memory serves half a warp at a time where neighbours share packs, and
// else a quarter. Threads between neighbouring lanes of a place.
constexpr int BRAIDED = BESIDE == 1 && LANES >= 4 && LANES <= 16 && UNITS % 2 == 0 ? 2 : 1;
constexpr int LANES_APART = BESIDE * BRAIDED;

// The place, and the lane of a place, of a thread of a walk.
__device__ __forceinline__ int place_of(int thread)
{
    return thread / (LANES * BRAIDED) * BRAIDED + thread % BRAIDED;
}

__device__ __forceinline__ int lane_of(int thread)
{
    return thread / BRAIDED % LANES;
}

// The power of two that holds `count`.
__device__ constexpr int power_of_two(int count)
{
    int power = 1;
    while (power < count) power *= 2;
    return power;
}

// Pairs of a unit and a sample of a place, among how many lanes they are shared out, and lanes that have the same one.
constexpr int PAIRS = OWN * SAMPLES, SHARES = power_of_two(PAIRS), ALIKE = LANES / SHARES;
// 16-byte packs of a state that a thread multiplies with, every LANES-th of them; elements of a state.
constexpr int PACKS = (WIDTH + PACK * LANES - 1) / (PACK * LANES), HELD = PACKS * PACK * LANES;

// A number that is the same in a warp's threads, so that the compiler knows it is, where a warp has one walk.
__device__ __forceinline__ int same_in_warp(int value)
{
    return BESIDE == 1 ? __shfl_sync(0xffffffffu, value, 0) : value;
}

// Leaves in values[0] the sums over the place's lanes, which exchange with those of `mask`, of its own values, of COUNT:
// lanes that are APART share out what is left of them, or have the same sums.
template <int APART = LANES / 2, int COUNT = SHARES, int SUMS>
__device__ __forceinline__ void share_out(real (&values)[SHARES][SUMS], int lane, unsigned mask)
{
    if constexpr (APART > 0) {
        constexpr int HALF = COUNT / 2;
        const bool upper = lane & APART;
#pragma unroll
        for (int sum = 0; sum < SUMS; ++sum) {
            if constexpr (HALF == 0) {
                values[0][sum] += __shfl_xor_sync(mask, values[0][sum], APART * LANES_APART);
            } else {
#pragma unroll
                for (int i = 0; i < HALF; ++i) {
                    const real low = values[i][sum], high = values[i + HALF][sum];
                    const real other = __shfl_xor_sync(mask, upper ? low : high, APART * LANES_APART);
                    values[i][sum] = (upper ? high : low) + other;
                }
            }
        }
        share_out<APART / 2, (HALF ? HALF : 1)>(values, lane, mask);
    }
}

// What the sums of a place's units take of W_hh: for each unit and recurrent gate a row, or a column, of which a thread
// has every LANES-th pack.
struct Weights {
    static constexpr int ALL = OWN * R * PACKS, RESIDENT = ALL - BEYOND;

    Pack held[RESIDENT];
    Pack* beyond;

    __device__ __forceinline__ Weights()
    {
        extern __shared__ __align__(16) Pack behind[];
        beyond = behind + threadIdx.x;
    }

    // Those of a lane, for units from `first` on, from matrices of a recurrent gate each, `square` apart, whose units
    // are `by_unit` apart and terms `by_term`: zeros behind the last unit and term.
    __device__ __forceinline__ void load(
        const real* __restrict__ from, size_type square, int by_unit, int by_term, int hidden, int first, int lane)
    {
        const auto pack_of = [&](int number) {
            // Not known to the compiler, which else keeps the offsets of all rows in registers, and spills.
            if (ALL_STAY) asm volatile("" : "+r"(by_unit), "+r"(hidden));
            const int unit = first + number / PACKS / R, term = (number % PACKS * LANES + lane) * PACK;
            const real* const row = from + number / PACKS % R * square + unit * by_unit;
            Pack pack;
#pragma unroll
            for (int k = 0; k < PACK; ++k)
                pack.values[k] = (!ALL_STAY || unit < hidden) && term + k < hidden ? row[(term + k) * by_term] : real(0);
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

    // Adds each unit's products of recurrent gate g with a sample's state, at `state + g * aside`, to its sums[g % SUMS];
    // the samples' states are `apart`.
    template <int SUMS>
    __device__ __forceinline__ void multiply(
        const real* state, int aside, int apart, int lane, real (&sums)[SHARES][SUMS]) const
    {
        // Enough sums at once that none waits for the one before.
        constexpr int EACH = R / SUMS, PARTS = PAIRS > 1 ? 1 : R >= 4 ? EACH : R > 1 ? 2 * EACH : 4;
        const Pack* const packs = reinterpret_cast<const Pack*>(state) + lane;
        real parts[PAIRS][SUMS][PARTS];
#pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair)
#pragma unroll
            for (int sum = 0; sum < SUMS; ++sum)
#pragma unroll
                for (int part = 0; part < PARTS; ++part) parts[pair][sum][part] = part ? real(0) : sums[pair][sum];
#pragma unroll
        for (int p = 0; p < PACKS; ++p)
#pragma unroll
            for (int g = 0; g < R; ++g) {
                Pack pack[SAMPLES];
#pragma unroll
                for (int m = 0; m < SAMPLES; ++m) pack[m] = packs[m * apart / PACK + g * aside / PACK + p * LANES];
#pragma unroll
                for (int own = 0; own < OWN; ++own) {
                    const Pack weights = (*this)[(own * R + g) * PACKS + p];
#pragma unroll
                    for (int m = 0; m < SAMPLES; ++m)
#pragma unroll
                        for (int k = 0; k < PACK; ++k)
                            parts[own * SAMPLES + m][g % SUMS][(g / SUMS + (p * PACK + k) * EACH) % PARTS] +=
                                weights.values[k] * pack[m].values[k];
                }
            }
#pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair)
#pragma unroll
            for (int sum = 0; sum < SUMS; ++sum) {
#pragma unroll
                for (int far = 1; far < PARTS; far *= 2)
#pragma unroll
                    for (int part = 0; part + far < PARTS; part += 2 * far)
                        parts[pair][sum][part] += parts[pair][sum][part + far];
                sums[pair][sum] = parts[pair][sum][0];
            }
    }
};

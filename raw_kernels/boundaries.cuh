// Scans over the boundaries of chunks: value_m = (map_m value_{m-1}) + added_m, where column j of a map carries a
// power of two. A walk is a sample's; a block makes one walk.
//
// To 20 elements, and for 40, a thread takes an element and holds what it needs of the next DEPTH maps in
// registers. Others are made by pieces (pieces.cuh).

#include "packs.cuh"
#include "powers.cuh"

// One walk's arrays at the first map that it takes, and by how much they are apart from one map to the next.
struct BoundaryScan {
    const real* maps;      // (size, size): by columns
    const int* exponents;  // (size)
    const real* added;     // (batch, size)
    real* found;           // (batch, size)
    size_type count, items_apart, added_apart, found_apart;
    int size;
};

// What a thread needs of one map: a row, or a column where Way::COLUMNS.
template <int N>
struct Fetched {
    real entries[N], added;
    int exponent;
};

// FULL: the size is N. `held` are 2 * blockDim.x reals of shared memory; `place` the place of the thread's
// element, which of threads without one is the last, and `value` it before the first map.
template <int N, bool FULL, class Way>
__device__ __forceinline__ void scan_in_registers(
    const BoundaryScan& walk, const Way& way, real value, size_type place, real* held)
{
    constexpr int BLOCK = (N + 31) / 32 * 32, BYTES = N * int(sizeof(real));
    // Even, and as many as there are registers for.
    constexpr bool MANY = FULL && (Way::COLUMNS || sizeof(real) == 4);
    constexpr int DEPTH = BYTES > 160 ? 2 : BYTES > 80 ? 2 + 2 * MANY : 4 + 2 * MANY;
    const int size = FULL ? N : walk.size, row = threadIdx.x, element = min(row, size - 1);
    const bool mine = row < size;
    const real* maps = walk.maps + element * (Way::COLUMNS ? size : 1);
    const int* exponents = walk.exponents + element;
    const real* added = walk.added + place;
    real* found = walk.found + place;
    const size_type maps_apart = walk.items_apart * size * size, exponents_apart = walk.items_apart * size;
    size_type behind = walk.count - 1;  // maps behind the one that is fetched next
    Fetched<N> ring[DEPTH];
    // The last map again and again once all are fetched: no load is conditional, so that none is waited for early.
    const auto fetch = [&](Fetched<N>& to) {
        if (FULL && Way::COLUMNS) {
#pragma unroll
            for (int p = 0; p < N / PACK; ++p) {
                const Pack pack = reinterpret_cast<const Pack*>(maps)[p];
#pragma unroll
                for (int k = 0; k < PACK; ++k) to.entries[p * PACK + k] = pack.values[k];
            }
        } else {
            int apart = Way::COLUMNS ? 1 : size, last = N - 1;
            if (!FULL) {
                // Not known to the compiler, which else keeps all entries' offsets in registers, and spills.
                last = size - 1;
                asm volatile("" : "+r"(apart), "+r"(last));
            }
            const real* entry = maps;
#pragma unroll
            for (int j = 0; j < N; ++j) {
                to.entries[j] = *entry;
                entry += j < last ? apart : 0;
            }
        }
        to.exponent = *exponents;
        to.added = *added;
        const bool more = behind > 0;
        maps += more ? maps_apart : 0;
        exponents += more ? exponents_apart : 0;
        added += more ? walk.added_apart : 0;
        --behind;
    };
    const auto step = [&](const Fetched<N>& from, real* given) {
        given[row] = mine ? way.offered(value, from.exponent) : real(0);
        if (BLOCK > 32) __syncthreads();
        else __syncwarp();
        real sums[4] = {};
#pragma unroll
        for (int p = 0; p < N / PACK; ++p) {
            const Pack pack = reinterpret_cast<const Pack*>(given)[p];
#pragma unroll
            for (int k = 0; k < PACK; ++k) {
                const int j = p * PACK + k;
                sums[j % 4] += (FULL || j < size ? from.entries[j] : real(0)) * pack.values[k];
            }
        }
        value = way.taken((sums[0] + sums[1]) + (sums[2] + sums[3]), from.added, from.exponent);
        if (mine) *found = value;
        found += walk.found_apart;
    };
#pragma unroll
    for (int slot = 0; slot < DEPTH; ++slot) fetch(ring[slot]);
    size_type left = walk.count;
#pragma unroll 1
    for (; left >= DEPTH; left -= DEPTH)
#pragma unroll
        for (int slot = 0; slot < DEPTH; ++slot) {
            step(ring[slot], held + slot % 2 * BLOCK);
            fetch(ring[slot]);
        }
#pragma unroll
    for (int slot = 0; slot < DEPTH - 1; ++slot)
        if (slot < left) step(ring[slot], held + slot % 2 * BLOCK);
    __syncthreads();
}

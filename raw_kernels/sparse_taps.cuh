// The taps of a sparse convolution in shared memory, and the input that output positions read through them. A tap that
// falls outside the input reads 0. A sample of the input has fewer than 2^31 elements, and the outputs of one channel
// over the batch are fewer than 2^31.

#include "division.cuh"
#include "packs.cuh"

const int LANES = 32;

// Offsets up to NEAR rows and columns are tested by bits: columns in bits 0 to 14, rows in bits 16 to 30. Bits 15 and
// 31 stand for no offset.
const int NEAR = 7;

// Taps that a loop reads at once, a multiple of which a table holds.
const int TOGETHER = 8;

// `offset` counts elements from the input that the position itself names. `seen` holds the bits of row and column, or
// the row if a tap of the table is far.
struct __align__(8) Tap {
    int offset, seen;
};

struct __align__(16) Taps {
    Tap taps[2];
};

// A tap that reads 0 everywhere, tested by bits or as a far one.
const int NOWHERE_BITS = 1 << 15, NOWHERE = -(1 << 30);

__device__ __forceinline__ bool is_far(int down, int right) { return abs(down) > NEAR || abs(right) > NEAR; }

__device__ __forceinline__ Tap tap_to(int channel, int down, int right, int in_plane, int in_width)
{
    const unsigned bits = 1u << ((16 + NEAR + down) & 31) | 1u << ((NEAR + right) & 31);
    return {channel * in_plane + down * in_width + right, int(bits)};
}

// Bit NEAR + i is set where `place` + i lies outside [0, extent); bit 15 always.
__device__ __forceinline__ unsigned bits_outside(int place, int extent)
{
    const int low = min(max(NEAR - place, 0), 15), high = min(max(NEAR - place + extent, 0), 15);
    return 0xffffu & ~(((1u << high) - 1u) & ~((1u << low) - 1u));
}

struct Extent {
    int height, width;
};

// One output position in EACH samples. `from` points to the input element (y, x) of channel 0, which may lie outside.
template <int EACH>
struct Position {
    const real* from[EACH];
    int y, x;
    unsigned outside;

    // Where samples end, the last one is read again.
    __device__ __forceinline__ void place(
        const real* image, size_type size, int samples, int row, int column, Extent input)
    {
        y = row, x = column;
#pragma unroll
        for (int e = 0; e < EACH; ++e) from[e] = image + min(e, samples - 1) * size + (row * input.width + column);
        outside = bits_outside(row, input.height) << 16 | bits_outside(column, input.width);
    }

    // A position that reads 0 through every tap.
    __device__ __forceinline__ void leave_out(const real* image)
    {
        y = NOWHERE, x = 0;
#pragma unroll
        for (int e = 0; e < EACH; ++e) from[e] = image;
        outside = ~0u;
    }

    template <bool FAR>
    __device__ __forceinline__ void read(const Tap& tap, int right, Extent input, real (&values)[EACH]) const
    {
        const bool inside = FAR ? unsigned(y + tap.seen) < unsigned(input.height)
                                      && unsigned(x + right) < unsigned(input.width)
                                : !(outside & unsigned(tap.seen));
#pragma unroll
        for (int e = 0; e < EACH; ++e) values[e] = inside ? from[e][tap.offset] : real(0);
    }
};

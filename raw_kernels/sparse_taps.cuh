// The taps of a sparse convolution in shared memory, and the input that output positions read through them. A tap that
// falls outside the input reads 0. A sample of the input has fewer than 2^31 elements, and the outputs of one channel
// over the batch are fewer than 2^31.

const int LANES = 32, WARPS = 8, CHUNK = 64;

// Offsets up to NEAR rows and columns are tested by bits: columns in bits 0 to 14, rows in bits 16 to 30. Bits 15 and
// 31 stand for no offset.
const int NEAR = 7;

// `offset` counts elements from the input that the position itself names. Where all taps of a chunk are near, `down`
// holds the bits of row and column in place of the row.
struct __align__(16) Tap {
    int offset, down, right;
    real weight;
};

__device__ __forceinline__ Tap tap_to(int channel, int down, int right, int in_plane, int in_width, real weight)
{
    return {channel * in_plane + down * in_width + right, down, right, weight};
}

// A tap that reads 0 everywhere, whether it is tested by bits or not.
__device__ __forceinline__ Tap no_tap() { return {0, -(1 << 30), 0, real(0)}; }

__device__ __forceinline__ bool is_far(const Tap& tap)
{
    return tap.down != -(1 << 30) && (abs(tap.down) > NEAR || abs(tap.right) > NEAR);
}

__device__ __forceinline__ void encode_bits(Tap& tap)
{
    tap.down = tap.down == -(1 << 30) ? 1 << 15 : 1 << (16 + NEAR + tap.down) | 1 << (NEAR + tap.right);
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

// An output position of one sample. `from` points to the input element (y, x) of channel 0, which may lie outside.
struct Position {
    const real* from;
    int y, x;
    unsigned outside;

    __device__ __forceinline__ void place(const real* image, int row, int column, Extent input)
    {
        y = row, x = column;
        from = image + (row * input.width + column);
        outside = bits_outside(row, input.height) << 16 | bits_outside(column, input.width);
    }

    // A position that reads 0 through every tap.
    __device__ __forceinline__ void leave_out(const real* image)
    {
        y = -(1 << 30), x = 0;
        from = image;
        outside = ~0u;
    }

    template <bool FAR>
    __device__ __forceinline__ real read(const Tap& tap, Extent input) const
    {
        const bool inside = FAR ? unsigned(y + tap.down) < unsigned(input.height)
                                      && unsigned(x + tap.right) < unsigned(input.width)
                                : !(outside & unsigned(tap.down));
        return inside ? from[tap.offset] : real(0);
    }
};

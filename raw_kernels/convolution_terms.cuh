// Sums over the positions of a convolution's outputs, by the 128 threads of a block: thread t takes every 128th term
// from t on, then the block adds its partial sums pairwise.

#define THREADS 128

// A term of the sums: a position of the output of one sample.
struct Term {
    int sample, y, x;
};

__device__ __forceinline__ Term term_at(int number, int rows, int columns)
{
    return {number / columns / rows, number / columns % rows, number % columns};
}

// How a sum goes through a thread's terms: where the first one lies, and by how much each next one lies on, so that
// no term takes a division.
struct Terms {
    Term first, apart;
    size_type count, in_apart, out_apart;
    int height, width, rows, columns, down, right;

    // The sum of the products of the gradient, from `value` on, and what a tap meets of the input, from `image`
    // on; of the gradient alone where not WEIGHT.
    template <bool WEIGHT>
    __device__ __forceinline__ real sum(
        const real* __restrict__ value, const real* __restrict__ image, int offset_y, int offset_x) const
    {
        // Terms whose loads are under way at once; biases are few.
        constexpr int TOGETHER = WEIGHT ? 4 : 2;
        const size_type value_apart = apart.sample * out_apart + apart.y * columns + apart.x;
        value += first.sample * out_apart + first.y * columns + first.x;
        image += first.sample * in_apart;
        int y = first.y, x = first.x;
        real sum = real(0);
#pragma unroll 1
        for (size_type left = count - threadIdx.x; left > 0; left -= TOGETHER * THREADS) {
            real values[TOGETHER], others[TOGETHER];
#pragma unroll
            for (int t = 0; t < TOGETHER; ++t) {
                const int in_y = y * down + offset_y, in_x = x * right + offset_x;
                const bool inside = in_y >= 0 && in_y < height && in_x >= 0 && in_x < width;
                const bool meets = left > t * THREADS && (inside || !WEIGHT);
                values[t] = meets ? *value : real(0);
                others[t] = WEIGHT && meets ? image[in_y * width + in_x] : real(1);
                x += apart.x;
                const bool past_row = x >= columns;
                x -= past_row ? columns : 0;
                y += apart.y + past_row;
                const bool past_plane = y >= rows;
                y -= past_plane ? rows : 0;
                value += value_apart + (past_plane ? out_apart - rows * columns : 0);
                image += apart.sample * in_apart + (past_plane ? in_apart : 0);
            }
#pragma unroll
            for (int t = 0; t < TOGETHER; ++t) sum += values[t] * others[t];
        }
        return sum;
    }
};

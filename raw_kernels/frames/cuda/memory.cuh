// Walks of any number of units: a block walks WALKS_TOGETHER samples of one set of weights, or one. Weights lie where
// they are.

const int BLOCK = 256;

// Whether a block takes several of so many walks: each weight that is read serves all of them.
__device__ __forceinline__ bool together(size_type walks, size_type batch)
{
    return walks >= MANY_WALKS && batch >= WALKS_TOGETHER;
}

// Multiples of PACK, which inputs of a product are padded to.
__device__ __forceinline__ int padded(int count) { return (count + PACK - 1) / PACK * PACK; }

// A matrix of one set's weights: `outputs` sums over `inputs`, the distance of neighbours in either.
struct Matrix {
    int outputs, inputs, by_output, by_input;
    const real* values;

    // Parts that a sum is cut into, so that all threads have work.
    __device__ __forceinline__ int parts() const { return outputs < BLOCK ? BLOCK / outputs : 1; }

    __device__ __forceinline__ real at(int output, int input) const
    {
        return input < inputs ? values[(size_type)output * by_output + (size_type)input * by_input] : real(0);
    }

    __device__ __forceinline__ Pack pack(int number, int output) const
    {
        Pack pack;
#pragma unroll
        for (int k = 0; k < PACK; ++k) pack.values[k] = at(output, number * PACK + k);
        return pack;
    }

    // Products with M vectors beside each other, (padded inputs, M), as (parts, outputs, M).
    template <int M>
    __device__ __forceinline__ void multiply(const real* vectors, real* sums) const
    {
        const int packs = padded(inputs) / PACK, share = (packs + parts() - 1) / parts();
        for (int place = threadIdx.x; place < outputs * parts(); place += BLOCK) {
            const int output = place % outputs, first = place / outputs * share, end = min(first + share, packs);
            real sum[M] = {};
#pragma unroll 4
            for (int p = first; p < end; ++p) {
                const Pack weights = pack(p, output);
                real given[M * PACK];
#pragma unroll
                for (int m = 0; m < M; ++m) {
                    const Pack some = reinterpret_cast<const Pack*>(vectors)[p * M + m];
#pragma unroll
                    for (int k = 0; k < PACK; ++k) given[m * PACK + k] = some.values[k];
                }
#pragma unroll
                for (int k = 0; k < PACK; ++k)
#pragma unroll
                    for (int m = 0; m < M; ++m) sum[m] += weights.values[k] * given[k * M + m];
            }
#pragma unroll
            for (int m = 0; m < M; ++m) sums[place * M + m] = sum[m];
        }
    }

    // The sum of an output's parts.
    template <int M>
    __device__ __forceinline__ real sum_of_parts(const real* sums, int output, int m) const
    {
        real sum = 0;
        for (int part = 0; part < parts(); ++part) sum += sums[(part * outputs + output) * M + m];
        return sum;
    }
};

// Samples [first, first + count) with one set of weights.
struct Tile {
    size_type set, first, width;
    int count, hidden;

    // Tile `number` of those of M.
    __device__ __forceinline__ Tile(size_type number, int hidden, size_type sets, size_type batch, int M)
        : width(sets * hidden), hidden(hidden)
    {
        const size_type tiles = (batch + M - 1) / M;
        set = number / tiles;
        first = number % tiles * M;
        count = int(min(size_type(M), batch - first));
    }

    // The element of a unit of sample m in row `row` of an array (batch, rows, sets, hidden).
    __device__ __forceinline__ size_type element(int rows, int row, int unit, int m) const
    {
        return ((first + m) * rows + row) * width + set * hidden + unit;
    }
};

// Tiles of M of all sets.
__device__ __forceinline__ size_type tile_count(size_type sets, size_type batch, int M)
{
    return sets * ((batch + M - 1) / M);
}

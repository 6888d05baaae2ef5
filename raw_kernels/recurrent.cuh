// What the walks over time share. A weight matrix's rows or columns are held a thread: in registers to
// N = 64, where a block has a thread for each, else read from memory.

// Elements of a state in shared memory: N, the rest of them 0, or `hidden` where nothing is held.
template <int N>
__device__ inline int padded_width(size_type hidden)
{
    return N ? N : int(hidden);
}

// A block of one warp waits for no other.
__device__ inline void wait_for_block()
{
    if (blockDim.x == 32)
        __syncwarp();
    else
        __syncthreads();
}

// Calls act(k) for each k < count that falls to this thread, its own number alone where rows are held.
template <int N, class Act>
__device__ inline void for_each(size_type count, Act act)
{
    if (N) {
        if (threadIdx.x < count) act(int(threadIdx.x));
    } else {
        for (int k = threadIdx.x; k < count; k += blockDim.x) act(k);
    }
}

// Calls act(s, s % A) for s from 0 to steps - 1, A of them unrolled, so that the compiler knows s % A.
template <int A, class Act>
__device__ inline void for_each_step(size_type steps, Act act)
{
    for (size_type group = 0; group < steps; group += A) {
#pragma unroll
        for (int a = 0; a < A; ++a) {
            if (group + a >= steps) break;
            act(group + a, a);
        }
    }
}

// C values a step, `apart` elements from one to the next and `stride` to those of the next step, fetched A
// steps before they are used: a load takes as long as some steps do.
template <int A, int C = 1>
struct Stream {
    const real* source;
    size_type place, stride, apart, left;
    real held[C][A];

    __device__ Stream(
        const real* source, size_type first, size_type stride, size_type count, size_type apart = 0)
        : source(source), place(first), stride(stride), apart(apart), left(count)
    {
#pragma unroll
        for (int a = 0; a < A; ++a) fetch(a, a);
    }

    __device__ void fetch(int a, size_type ahead)
    {
#pragma unroll
        for (int c = 0; c < C; ++c)
            held[c][a] = ahead < left ? source[place + ahead * stride + c * apart] : real(0);
    }

    // Value c of a step with s % A = a, or the one `aside` elements from it.
    __device__ real read(int a, size_type aside, int c = 0) const
    {
        return aside ? source[place + aside + c * apart] : held[c][a];
    }

    // On to the next step, once after each.
    __device__ void advance(int a)
    {
        fetch(a, A);
        place += stride;
        --left;
    }
};

// 16 bytes of shared memory, one load.
struct __align__(16) Pack {
    real values[16 / sizeof(real)];
};

// Steps that the backward passes of several gates fetch ahead: few where weights fill the registers.
template <int N>
__device__ constexpr int steps_ahead()
{
    return N * sizeof(real) > 256 ? 1 : N * sizeof(real) > 160 ? 2 : 8;
}

template <int N>
struct Row {
    real held[N];

    // Row `row` of the (rows, hidden) matrix; zeros for a thread past the last.
    __device__ void load_row(
        const real* __restrict__ matrix, size_type row, size_type rows, size_type hidden)
    {
#pragma unroll
        for (int k = 0; k < N; ++k)
            held[k] = row < rows && k < hidden ? matrix[row * hidden + k] : real(0);
    }

    // Column `column` of the (hidden, hidden) matrix, where it has one.
    __device__ void load_column(
        const real* __restrict__ matrix, size_type column, bool exists, size_type hidden)
    {
#pragma unroll
        for (int k = 0; k < N; ++k)
            held[k] = exists && k < hidden ? matrix[k * hidden + column] : real(0);
    }

    // The product with N values in shared memory, at a multiple of 16 bytes, in four partial sums.
    __device__ real dot(const real* values) const
    {
        const int size = sizeof(Pack) / sizeof(real);
        const Pack* const packs = reinterpret_cast<const Pack*>(values);
        real sums[4] = {0, 0, 0, 0};
#pragma unroll
        for (int p = 0; p < N / size; ++p) {
            const Pack pack = packs[p];
#pragma unroll
            for (int k = 0; k < size; ++k) sums[(p * size + k) % 4] += held[p * size + k] * pack.values[k];
        }
        return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }

    __device__ real dot_row(const real*, size_type, size_type, const real* values) const
    {
        return dot(values);
    }

    __device__ real dot_column(const real*, size_type, size_type, const real* values) const
    {
        return dot(values);
    }
};

template <>
struct Row<0> {
    __device__ void load_row(const real*, size_type, size_type, size_type) {}
    __device__ void load_column(const real*, size_type, bool, size_type) {}

    __device__ real dot_row(
        const real* __restrict__ matrix, size_type row, size_type hidden, const real* values) const
    {
        real sum = 0;
        for (size_type k = 0; k < hidden; ++k) sum += matrix[row * hidden + k] * values[k];
        return sum;
    }

    __device__ real dot_column(
        const real* __restrict__ matrix, size_type column, size_type hidden, const real* values) const
    {
        real sum = 0;
        for (size_type k = 0; k < hidden; ++k) sum += matrix[k * hidden + column] * values[k];
        return sum;
    }
};

// Runs CALL(N) for the least N of 8, 20, 32, 64 that holds `hidden`, else CALL(0).
#define BY_WIDTH(hidden, CALL)            \
    if ((hidden) <= 8) CALL(8);           \
    else if ((hidden) <= 20) CALL(20);    \
    else if ((hidden) <= 32) CALL(32);    \
    else if ((hidden) <= 64) CALL(64);    \
    else CALL(0)

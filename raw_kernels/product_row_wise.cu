// C = A B row by row, in Gustavson's order and without a map. A block a row of C and 32 samples, or all where
// there are fewer; it takes the columns in windows whose sums fit shared memory, so that C is written once.
// For one entry of A's row after the other, threads of neighbouring samples add that multiple of the part of
// B's row that lies in the window, no two of them to the same sum. A column's sums lie beside each other, a power
// of two of them where that takes no entry from a block's threads, so that 26 to 32 samples of one column do not
// meet in a bank. Of fewer, a warp has several columns, and each line of banks is turned by another number of
// columns: those of images, which are powers of two apart, do not all meet in one bank.

#include "prelude.cuh"
#include "batched.cuh"

#define SAMPLES 32
#define THREADS 128
#define SUMS (32768 / (int)sizeof(real))
#define BANKS (128 / (int)sizeof(real))

// The first of the sorted columns from `first` to `end` that is not below `column`.
__device__ __forceinline__ size_type first_from(
    const index_t* columns, size_type first, size_type end, size_type column)
{
    while (first < end) {
        size_type middle = (first + end) / 2;
        if ((size_type)columns[middle] < column) first = middle + 1;
        else end = middle;
    }
    return first;
}

// Threads that an entry takes for so many samples.
__device__ __forceinline__ int lanes_for(int width)
{
    int power = 1;
    while (power < width) power *= 2;
    return THREADS / power == THREADS / width ? power : width;
}

// Where the sum of a column and lane lies. Lines of BANKS sums are turned by a number of columns that says nothing
// of the line's (Fibonacci hashing); where columns do not fill lines they are not.
__device__ __forceinline__ int place_of(int column, int lane, int lanes)
{
    const int plain = column * lanes + lane;
    if (lanes & (lanes - 1)) return plain;
    const int turn = int((unsigned int)plain / BANKS * 0x9E3779B1u >> 27);
    return (plain & -BANKS) | ((plain + turn * lanes) & (BANKS - 1));
}

extern "C" __global__ void product_row_wise(
    const index_t* __restrict__ a_indptr,   // (rows + 1)
    const index_t* __restrict__ a_indices,  // (a_nnz)
    const real* __restrict__ a,             // (a_nnz, batch) if a_batched else (a_nnz)
    const index_t* __restrict__ b_indptr,   // (inner + 1)
    const index_t* __restrict__ b_indices,  // (b_nnz)
    const real* __restrict__ b,             // (b_nnz, batch) if b_batched else (b_nnz)
    const index_t* __restrict__ c_indptr,   // (rows + 1)
    const index_t* __restrict__ c_indices,  // (c_nnz)
    real* __restrict__ c,                   // (c_nnz, batch) output only
    size_type rows, size_type inner, size_type columns, size_type a_nnz, size_type b_nnz,
    size_type c_nnz, size_type batch, int a_batched, int b_batched)
{
    __shared__ real sums[SUMS];
    __shared__ size_type starts[THREADS], ends[THREADS];
    size_type groups = (batch + SAMPLES - 1) / SAMPLES;
    for (size_type item = blockIdx.x; item < rows * groups; item += gridDim.x) {
        size_type row = item / groups, sample = item % groups * SAMPLES;
        // A thread has one sample, and every `together`-th entry; threads that are left over have none.
        const int width = batch - sample < SAMPLES ? batch - sample : SAMPLES;
        const int lanes = lanes_for(width), together = THREADS / lanes, lane = threadIdx.x % lanes;
        const int own = lane < width && threadIdx.x / lanes < together ? threadIdx.x / lanes : SUMS;
        const size_type wide = SUMS / lanes;
        size_type a_end = a_indptr[row + 1], c_end = c_indptr[row + 1];
        for (size_type first = c_indptr[row]; first < c_end;) {
            // The next window begins at the next column that there is.
            size_type window = c_indices[first];
            size_type last = first_from(c_indices, first, c_end, window + wide);
            // Whole lines, whose sums are turned.
            const int used = (int((size_type)c_indices[last - 1] - window + 1) * lanes + BANKS - 1) & -BANKS;
            for (int i = threadIdx.x; i < used; i += blockDim.x) sums[i] = real(0);
            for (size_type base = a_indptr[row]; base < a_end; base += THREADS) {
                size_type count = a_end - base < THREADS ? a_end - base : THREADS;
                __syncthreads();
                for (int i = threadIdx.x; i < count; i += blockDim.x) {
                    size_type middle = a_indices[base + i], end = b_indptr[middle + 1];
                    starts[i] = first_from(b_indices, b_indptr[middle], end, window);
                    ends[i] = first_from(b_indices, starts[i], end, window + wide);
                }
                __syncthreads();
                for (int i = 0; i < count; ++i) {
                    const size_type start = starts[i];
                    const int entries = ends[i] - start;
                    if (entries == 0) continue;
                    if (own < entries) {
                        const real factor = value_at(a, base + i, a_batched, batch, sample + lane);
                        for (int entry = own; entry < entries; entry += together)
                            sums[place_of(int((size_type)b_indices[start + entry] - window), lane, lanes)]
                                += factor * value_at(b, start + entry, b_batched, batch, sample + lane);
                    }
                    __syncthreads();
                }
            }
            for (size_type entry = first + own; entry < last; entry += together)
                c[entry * batch + sample + lane]
                    = sums[place_of(int((size_type)c_indices[entry] - window), lane, lanes)];
            __syncthreads();
            first = last;
        }
    }
}

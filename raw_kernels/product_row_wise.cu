// C = A B row by row, in Gustavson's order and without a map. A block a row of C and 32 samples: for
// one entry of A's row after the other, threads of neighbouring samples add that multiple of B's row, no
// two of them to the same sum. Where a column of B lands in C's row is looked up in shared memory, in
// which the row's places are kept for a window of columns at a time. The sums are C itself: with few
// large blocks, what the resident ones add to fits the second cache.
//
//   a_indptr   (rows + 1)                      input
//   a_indices  (a_nnz)                         input
//   a          (a_nnz * batch), or (a_nnz)     input
//   b_indptr   (inner + 1)                     input
//   b_indices  (b_nnz)                         input
//   b          (b_nnz * batch), or (b_nnz)     input
//   c_indptr   (rows + 1)                      input
//   c_indices  (c_nnz)                         input
//   c          (c_nnz * batch)                 output only

#include "prelude.cuh"
#include "batched.cuh"

#define SAMPLES 32
#define WINDOW 8192

extern "C" __global__ void product_row_wise(
    const index_t* __restrict__ a_indptr, const index_t* __restrict__ a_indices,
    const real* __restrict__ a, const index_t* __restrict__ b_indptr,
    const index_t* __restrict__ b_indices, const real* __restrict__ b,
    const index_t* __restrict__ c_indptr, const index_t* __restrict__ c_indices, real* __restrict__ c,
    size_type rows, size_type inner, size_type columns, size_type a_nnz, size_type b_nnz, size_type c_nnz,
    size_type batch, int a_batched, int b_batched)
{
    __shared__ unsigned int place[WINDOW];
    size_type groups = (batch + SAMPLES - 1) / SAMPLES;
    for (size_type item = blockIdx.x; item < rows * groups; item += gridDim.x) {
        size_type row = item / groups, sample = item % groups * SAMPLES;
        size_type width = batch - sample < SAMPLES ? batch - sample : SAMPLES;
        size_type first = c_indptr[row], length = (size_type)c_indptr[row + 1] - first;
        for (size_type i = threadIdx.x; i < length * width; i += blockDim.x) {
            size_type entry, lane;
            split(i, width, &entry, &lane);
            c[(first + entry) * batch + sample + lane] = real(0);
        }
        for (size_type window = 0; window < columns; window += WINDOW) {
            __syncthreads();
            for (size_type i = threadIdx.x; i < length; i += blockDim.x) {
                size_type column = (size_type)c_indices[first + i] - window;
                if (column >= 0 && column < WINDOW) place[column] = (unsigned int)i;
            }
            for (size_type i = a_indptr[row]; i < (size_type)a_indptr[row + 1]; ++i) {
                size_type middle = a_indices[i], start = b_indptr[middle];
                size_type work = ((size_type)b_indptr[middle + 1] - start) * width;
                __syncthreads();
                for (size_type j = threadIdx.x; j < work; j += blockDim.x) {
                    size_type entry, lane;
                    split(j, width, &entry, &lane);
                    size_type column = (size_type)b_indices[start + entry] - window;
                    if (column >= 0 && column < WINDOW)
                        c[(first + place[column]) * batch + sample + lane]
                            += value_at(a, i, a_batched, batch, sample + lane)
                            * value_at(b, start + entry, b_batched, batch, sample + lane);
                }
            }
        }
        __syncthreads();
    }
}

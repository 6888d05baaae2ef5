// C = A B where every row of B is empty or full, so that each row of C is, too: row i of C sums B's
// full rows times the entries of A's row i. A block a row, a thread an entry of it and sample, whose sum
// stays in a register.

#include "prelude.cuh"
#include "batched.cuh"

extern "C" __global__ void product_full_rows(
    const index_t* __restrict__ a_indptr,   // (rows + 1)
    const index_t* __restrict__ a_indices,  // (a_nnz)
    const real* __restrict__ a,             // (a_nnz, batch) if a_batched else (a_nnz)
    const index_t* __restrict__ b_indptr,   // (inner + 1)
    const real* __restrict__ b,             // (b_nnz, batch) if b_batched else (b_nnz)
    const index_t* __restrict__ c_indptr,   // (rows + 1)
    real* __restrict__ c,                   // (c_nnz, batch) output only
    size_type rows, size_type inner, size_type a_nnz, size_type b_nnz, size_type c_nnz, size_type batch,
    int a_batched, int b_batched)
{
    for (size_type row = blockIdx.x; row < rows; row += gridDim.x) {
        size_type first = c_indptr[row], length = (size_type)c_indptr[row + 1] - first;
        for (size_type item = threadIdx.x; item < length * batch; item += blockDim.x) {
            size_type column, sample;
            split(item, batch, &column, &sample);
            real sum = real(0);
            for (size_type i = a_indptr[row]; i < (size_type)a_indptr[row + 1]; ++i) {
                size_type middle = a_indices[i], entry = (size_type)b_indptr[middle] + column;
                if (entry < (size_type)b_indptr[middle + 1])
                    sum += value_at(a, i, a_batched, batch, sample)
                        * value_at(b, entry, b_batched, batch, sample);
            }
            c[first * batch + item] = sum;
        }
    }
}

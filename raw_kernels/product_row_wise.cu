// C = A B row by row (Gustavson's order) with a position map: where in its row of C each
// multiply-add lands. One thread a row and sample, which alone writes that row of C.
//
//   a_indptr   (rows + 1)                      input
//   a_indices  (a_nnz)                         input
//   a          (a_nnz * batch), or (a_nnz)     input
//   b_indptr   (inner + 1)                     input
//   b          (b_nnz * batch), or (b_nnz)     input
//   c_indptr   (rows + 1)                      input
//   row_terms  (rows + 1)                      input, first multiply-add of each row
//   position   (terms)                         input, place inside the row of C
//   c          (c_nnz * batch)                 output only

#include "prelude.cuh"
#include "batched.cuh"

extern "C" __global__ void product_row_wise(
    const index_t* __restrict__ a_indptr, const index_t* __restrict__ a_indices,
    const real* __restrict__ a, const index_t* __restrict__ b_indptr, const real* __restrict__ b,
    const index_t* __restrict__ c_indptr, const index_t* __restrict__ row_terms,
    const index_t* __restrict__ position, real* __restrict__ c, size_type rows, size_type inner,
    size_type a_nnz, size_type b_nnz, size_type c_nnz, size_type terms, size_type batch, int a_batched,
    int b_batched)
{
    GRID_STRIDE(item, rows * batch) {
        size_type row = item / batch, sample = item % batch;
        size_type first = c_indptr[row], term = row_terms[row];
        for (size_type entry = first; entry < (size_type)c_indptr[row + 1]; ++entry)
            c[entry * batch + sample] = real(0);
        for (size_type i = a_indptr[row]; i < (size_type)a_indptr[row + 1]; ++i) {
            size_type middle = a_indices[i];
            real factor = value_at(a, i, a_batched, batch, sample);
            for (size_type j = b_indptr[middle]; j < (size_type)b_indptr[middle + 1]; ++j, ++term)
                c[(first + position[term]) * batch + sample]
                    += factor * value_at(b, j, b_batched, batch, sample);
        }
    }
}

// C = A B where A is a selection (at most one entry a row, as of max-pooling without overlap): row i
// of C is the row of B that A's entry names, times that entry.

#include "prelude.cuh"
#include "batched.cuh"

extern "C" __global__ void product_select_rows(
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
    GRID_STRIDE(item, rows * batch) {
        size_type row, sample;
        split(item, batch, &row, &sample);
        size_type chosen = a_indptr[row];
        if (chosen == (size_type)a_indptr[row + 1]) continue;
        real factor = value_at(a, chosen, a_batched, batch, sample);
        size_type source = b_indptr[a_indices[chosen]];
        for (size_type entry = c_indptr[row]; entry < (size_type)c_indptr[row + 1]; ++entry, ++source)
            c[entry * batch + sample] = factor * value_at(b, source, b_batched, batch, sample);
    }
}

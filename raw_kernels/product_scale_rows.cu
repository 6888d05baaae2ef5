// C = A B where A is a whole diagonal: row i of B times A's entry i. C has B's pattern.

#include "prelude.cuh"
#include "batched.cuh"

extern "C" __global__ void product_scale_rows(
    const index_t* __restrict__ indptr,  // (rows + 1): B's and C's
    const real* __restrict__ a,          // (rows, batch) if a_batched else (rows)
    const real* __restrict__ b,          // (nnz, batch) if b_batched else (nnz)
    real* __restrict__ c,                // (nnz, batch) output only
    size_type rows, size_type nnz, size_type batch, int a_batched, int b_batched)
{
    GRID_STRIDE(item, rows * batch) {
        size_type row, sample;
        split(item, batch, &row, &sample);
        real factor = value_at(a, row, a_batched, batch, sample);
        for (size_type entry = indptr[row]; entry < (size_type)indptr[row + 1]; ++entry)
            c[entry * batch + sample] = factor * value_at(b, entry, b_batched, batch, sample);
    }
}

// C = A B where B is a whole diagonal: column j of A times B's entry j. C has A's pattern.

#include "prelude.cuh"
#include "batched.cuh"

extern "C" __global__ void product_scale_columns(
    const index_t* __restrict__ indices,  // (nnz): A's and C's
    const real* __restrict__ a,           // (nnz, batch) if a_batched else (nnz)
    const real* __restrict__ b,           // (columns, batch) if b_batched else (columns)
    real* __restrict__ c,                 // (nnz, batch) output only
    size_type columns, size_type nnz, size_type batch, int a_batched, int b_batched)
{
    GRID_STRIDE(item, nnz * batch) {
        size_type entry, sample;
        split(item, batch, &entry, &sample);
        c[item] = value_at(a, entry, a_batched, batch, sample)
            * value_at(b, (size_type)indices[entry], b_batched, batch, sample);
    }
}

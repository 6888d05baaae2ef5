// C = A B where B is a whole diagonal: column j of A times B's entry j. C has A's pattern.
//
//   indices  (nnz)                                    input, A's and C's
//   a        (nnz * batch), or (nnz) shared           input
//   b        (columns * batch), or (columns) shared   input
//   c        (nnz * batch)                            output only

#include "prelude.cuh"
#include "batched.cuh"

extern "C" __global__ void product_scale_columns(
    const index_t* __restrict__ indices, const real* __restrict__ a, const real* __restrict__ b,
    real* __restrict__ c, size_type columns, size_type nnz, size_type batch, int a_batched, int b_batched)
{
    GRID_STRIDE(item, nnz * batch) {
        size_type entry, sample;
        split(item, batch, &entry, &sample);
        c[item] = value_at(a, entry, a_batched, batch, sample)
            * value_at(b, (size_type)indices[entry], b_batched, batch, sample);
    }
}

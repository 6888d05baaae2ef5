// C = A B by a term list: for every entry of C, the pairs of entries of A and B whose products it
// sums. Output-stationary: one thread an entry of C and sample, terms in their order.

#include "prelude.cuh"
#include "batched.cuh"

extern "C" __global__ void product_terms(
    const index_t* __restrict__ term_ptr,    // (c_nnz + 1): first term of each entry of C
                                             // every entry has a term
    const index_t* __restrict__ a_position,  // (terms)
    const index_t* __restrict__ b_position,  // (terms)
    const real* __restrict__ a,              // (a_nnz, batch) if a_batched else (a_nnz)
    const real* __restrict__ b,              // (b_nnz, batch) if b_batched else (b_nnz)
    real* __restrict__ c,                    // (c_nnz, batch) output only
    size_type c_nnz, size_type terms, size_type a_nnz, size_type b_nnz, size_type batch, int a_batched,
    int b_batched)
{
    GRID_STRIDE(item, c_nnz * batch) {
        size_type entry, sample;
        split(item, batch, &entry, &sample);
        real sum = real(0);
        for (size_type term = term_ptr[entry]; term < (size_type)term_ptr[entry + 1]; ++term)
            sum += value_at(a, (size_type)a_position[term], a_batched, batch, sample)
                * value_at(b, (size_type)b_position[term], b_batched, batch, sample);
        c[item] = sum;
    }
}

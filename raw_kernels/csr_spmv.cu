// y = A x (+ addend): one step of the down-sweep, or of the linear scan, for every sample.
// One thread a row and sample; neighbouring threads take neighbouring samples of a row.

#include "prelude.cuh"
#include "batched.cuh"

extern "C" __global__ void csr_spmv(
    const index_t* __restrict__ indptr,   // (rows + 1)
    const index_t* __restrict__ indices,  // (nnz)
    const real* __restrict__ data,        // (nnz, batch) if batched else (nnz)
    const real* __restrict__ x,           // (columns, batch)
    const real* __restrict__ addend,      // (rows * batch) if affine else (0)
    real* __restrict__ y,                 // (rows, batch) output only
    size_type rows, size_type columns, size_type nnz, size_type batch, int batched, int affine)
{
    GRID_STRIDE(item, rows * batch) {
        size_type row, sample;
        split(item, batch, &row, &sample);
        real sum = affine ? addend[item] : real(0);
        for (size_type entry = indptr[row]; entry < (size_type)indptr[row + 1]; ++entry)
            sum += value_at(data, entry, batched, batch, sample) * x[(size_type)indices[entry] * batch + sample];
        y[item] = sum;
    }
}

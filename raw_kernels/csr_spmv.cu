// y = A x (+ addend): one step of the down-sweep, or of the linear scan, for every sample.
// One thread a row and sample; neighbouring threads take neighbouring samples of a row.
//
//   indptr   (rows + 1)                        input
//   indices  (nnz)                             input
//   data     (nnz * batch), or (nnz) shared    input
//   x        (columns * batch)                 input
//   addend   (rows * batch), or (0)            input, read where `affine` is 1
//   y        (rows * batch)                    output only

#include "prelude.cuh"
#include "batched.cuh"

extern "C" __global__ void csr_spmv(
    const index_t* __restrict__ indptr, const index_t* __restrict__ indices,
    const real* __restrict__ data, const real* __restrict__ x, const real* __restrict__ addend,
    real* __restrict__ y, size_type rows, size_type columns, size_type nnz, size_type batch,
    int batched, int affine)
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

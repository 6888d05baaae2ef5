// C = A B where all three store every element, row-major. One thread an element of C and sample.
//
//   a  (rows * inner * batch), or (rows * inner) shared         input
//   b  (inner * columns * batch), or (inner * columns) shared   input
//   c  (rows * columns * batch)                                 output only

#include "prelude.cuh"
#include "batched.cuh"

extern "C" __global__ void product_dense(
    const real* __restrict__ a, const real* __restrict__ b, real* __restrict__ c, size_type rows,
    size_type inner, size_type columns, size_type batch, int a_batched, int b_batched)
{
    GRID_STRIDE(item, rows * columns * batch) {
        size_type sample = item % batch, entry = item / batch;
        size_type row = entry / columns, column = entry % columns;
        real sum = real(0);
        for (size_type k = 0; k < inner; ++k)
            sum += value_at(a, row * inner + k, a_batched, batch, sample)
                * value_at(b, k * columns + column, b_batched, batch, sample);
        c[item] = sum;
    }
}

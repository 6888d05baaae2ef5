// C = A B where all three store every element, row-major. One thread a block of 4 by 4 elements of C
// and sample, whose sums stay in registers: 8 loads for 16 multiply-adds, neighbouring threads of
// neighbouring samples. At the edge a row or column is worked on twice and written once.

#include "prelude.cuh"
#include "batched.cuh"

#define TILE 4

extern "C" __global__ void product_dense(
    const real* __restrict__ a,  // (rows, inner, batch) if a_batched else (rows, inner)
    const real* __restrict__ b,  // (inner, columns, batch) if b_batched else (inner, columns)
    real* __restrict__ c,        // (rows, columns, batch) output only
    size_type rows, size_type inner, size_type columns, size_type batch, int a_batched, int b_batched)
{
    size_type across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
    GRID_STRIDE(item, down * across * batch) {
        size_type block, sample;
        split(item, batch, &block, &sample);
        size_type first_row = block / across * TILE, first_column = block % across * TILE;
        real sum[TILE][TILE] = {};
        for (size_type k = 0; k < inner; ++k) {
            real left[TILE], right[TILE];
#pragma unroll
            for (int i = 0; i < TILE; ++i) {
                size_type row = first_row + i < rows ? first_row + i : rows - 1;
                size_type column = first_column + i < columns ? first_column + i : columns - 1;
                left[i] = value_at(a, row * inner + k, a_batched, batch, sample);
                right[i] = value_at(b, k * columns + column, b_batched, batch, sample);
            }
#pragma unroll
            for (int i = 0; i < TILE; ++i)
#pragma unroll
                for (int j = 0; j < TILE; ++j) sum[i][j] += left[i] * right[j];
        }
#pragma unroll
        for (int i = 0; i < TILE; ++i)
#pragma unroll
            for (int j = 0; j < TILE; ++j)
                if (first_row + i < rows && first_column + j < columns)
                    c[((first_row + i) * columns + first_column + j) * batch + sample] = sum[i][j];
    }
}

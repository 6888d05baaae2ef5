// Values of the transposed Jacobian of rows divided by the root of their mean square, in CSR order: a dense block a
// row, by input and then output element, w_j (r [i = j] - x_i x_j r³ / width). A thread a value.

#include "prelude.cuh"

extern "C" __global__ void rms_norm_fill(
    const real* __restrict__ input,    // (batch, rows, width)
    const real* __restrict__ weight,   // (width) if scaled else (0)
    const real* __restrict__ inverse,  // (batch, rows)
    real* __restrict__ values,         // (rows, width, width, batch) output only
    size_type rows, size_type width, size_type batch, int scaled)
{
    GRID_STRIDE(item, rows * width * width * batch) {
        const size_type b = item % batch, j = item / batch % width, i = item / batch / width % width;
        const size_type row = item / batch / width / width, place = b * rows + row;
        const real r = inverse[place], scale = scaled ? weight[j] : real(1);
        const real product = input[place * width + i] * input[place * width + j] * (r * r * r / real(width));
        values[item] = scale * ((i == j ? r : real(0)) - product);
    }
}

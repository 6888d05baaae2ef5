// A convolution that goes by a list of the weights that are kept, one thread an output: the sum over the taps of its
// row that fall inside. The outputs of a channel are split into phases, each with a row of taps of its own, as the way
// back through a strided convolution needs them.

#include "prelude.cuh"

extern "C" __global__ void sparse_convolve(
    const real* __restrict__ input,    // (batch, in_channels, in_height, in_width)
    const real* __restrict__ values,   // (nnz): the kept weights
    const real* __restrict__ bias,     // (out_channels) if biased else (0)
    const int* __restrict__ indptr,    // (out_channels * phases_y * phases_x + 1): where the taps of each row begin
    const int* __restrict__ channels,  // (nnz): of the input, by tap
    const int* __restrict__ downs,     // (nnz): the tap sees row y * stride_y + down for the y-th row of its phase
    const int* __restrict__ rights,    // (nnz): likewise its column
    const int* __restrict__ which,     // (nnz): its weight's place in `values`
    real* __restrict__ output,         // (batch, out_channels, out_height, out_width) output only
    size_type batch, size_type in_channels, size_type in_height, size_type in_width, size_type stride_y,
    size_type stride_x, size_type out_channels, size_type out_height, size_type out_width, size_type phases_y,
    size_type phases_x, size_type nnz, size_type biased)
{
    const size_type in_plane = in_height * in_width;
    GRID_STRIDE(item, batch * out_channels * out_height * out_width) {
        const size_type column = item % out_width, row = item / out_width % out_height;
        const size_type feature = item / (out_width * out_height) % out_channels;
        const size_type sample = item / (out_width * out_height * out_channels);
        const size_type taps = (feature * phases_y + row % phases_y) * phases_x + column % phases_x;
        const size_type first_y = row / phases_y * stride_y, first_x = column / phases_x * stride_x;
        const real* image = input + sample * in_channels * in_plane;
        real sum = biased ? bias[feature] : real(0);
        for (int k = indptr[taps]; k < indptr[taps + 1]; ++k) {
            const size_type y = first_y + downs[k], x = first_x + rights[k];
            if (y >= 0 && y < in_height && x >= 0 && x < in_width)
                sum += values[which[k]] * image[channels[k] * in_plane + y * in_width + x];
        }
        output[item] = sum;
    }
}

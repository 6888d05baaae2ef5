// The gradients of a convolution by the weights that are kept, and by the bias, one block a sum. Wants 128 threads a
// block; the grid may have any size.

#include "prelude.cuh"
#include "convolution_terms.cuh"
#include "block_sum.cuh"

// The row of entry k of a list: the last one that begins at or before it.
__device__ __forceinline__ size_type row_of(const int* __restrict__ indptr, size_type rows, size_type k)
{
    size_type low = 0, high = rows;
    while (high - low > 1) {
        const size_type middle = (low + high) / 2;
        (indptr[middle] <= k ? low : high) = middle;
    }
    return low;
}

extern "C" __global__ void sparse_weight_gradient(
    const real* __restrict__ input,      // (batch, in_channels, in_height, in_width)
    const real* __restrict__ gradient,   // (batch, out_channels, out_height, out_width)
    const int* __restrict__ indptr,      // (out_channels + 1): where the taps of each output channel begin
    const int* __restrict__ channels,    // (nnz): of the input, by tap
    const int* __restrict__ downs,       // (nnz): output row y sees row y * stride_y + down
    const int* __restrict__ rights,      // (nnz): likewise its column
    real* __restrict__ weight_gradient,  // (nnz) output only
    real* __restrict__ bias_gradient,    // (out_channels) if biased else (0) output only
    size_type batch, size_type in_channels, size_type in_height, size_type in_width, size_type stride_y,
    size_type stride_x, size_type out_channels, size_type out_height, size_type out_width, size_type nnz,
    size_type biased)
{
    __shared__ real partial[THREADS];
    const size_type out_plane = out_height * out_width, sums = nnz + (biased ? out_channels : 0);
    const int rows = out_height, columns = out_width;
    const Terms terms = {term_at(threadIdx.x, rows, columns), term_at(THREADS, rows, columns),
                         batch * out_plane, in_channels * in_height * in_width, out_channels * out_plane,
                         int(in_height), int(in_width), rows, columns, int(stride_y), int(stride_x)};
    for (size_type item = blockIdx.x; item < sums; item += gridDim.x) {
        const bool is_weight = item < nnz;
        const size_type feature = is_weight ? row_of(indptr, out_channels, item) : item - nnz;
        const real* const value = gradient + feature * out_plane;
        const real* const image = is_weight ? input + channels[item] * in_height * in_width : input;
        const real sum = is_weight ? terms.sum<true>(value, image, downs[item], rights[item])
                                   : terms.sum<false>(value, image, 0, 0);
        const real total = block_sum(sum, partial);
        if (threadIdx.x == 0) (is_weight ? weight_gradient[item] : bias_gradient[feature]) = total;
    }
}

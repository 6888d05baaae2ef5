// Rows divided by the root of their mean square (Zhang and Sennrich 2019), times a weight. One block a row: thread t
// takes every 128th value from t on, then the block adds its partial sums pairwise. Wants 128 threads a block.

#include "prelude.cuh"
#include "block_sum.cuh"

#define THREADS 128

extern "C" __global__ void rms_norm_forward(
    const real* __restrict__ input,   // (rows, width)
    const real* __restrict__ weight,  // (width) if scaled else (0)
    real* __restrict__ output,        // (rows, width) output only
    real* __restrict__ inverse,       // (rows) output only, 1 / sqrt(mean square + eps)
    size_type rows, size_type width, double eps, int scaled)
{
    __shared__ real partial[THREADS];
    for (size_type row = blockIdx.x; row < rows; row += gridDim.x) {
        const real* const x = input + row * width;
        real squares = real(0);
        for (size_type k = threadIdx.x; k < width; k += THREADS) squares += x[k] * x[k];
        const real scale = real(1) / sqrt(block_sum(squares, partial) / real(width) + real(eps));
        for (size_type k = threadIdx.x; k < width; k += THREADS)
            output[row * width + k] = x[k] * scale * (scaled ? weight[k] : real(1));
        if (threadIdx.x == 0) inverse[row] = scale;
    }
}

// The gradient by rows that were divided by the root of their mean square: of g = weight times the gradient by the
// output, r (g - x r² mean(g x)), r being the inverse root. One block a row, as the forward pass has it.

#include "prelude.cuh"
#include "block_sum.cuh"

#define THREADS 128

extern "C" __global__ void rms_norm_vjp(
    const real* __restrict__ gradient,  // (rows, width)
    const real* __restrict__ input,     // (rows, width)
    const real* __restrict__ weight,    // (width) if scaled else (0)
    const real* __restrict__ inverse,   // (rows)
    real* __restrict__ result,          // (rows, width) output only
    size_type rows, size_type width, int scaled)
{
    __shared__ real partial[THREADS];
    for (size_type row = blockIdx.x; row < rows; row += gridDim.x) {
        const real* const x = input + row * width;
        const real* const g = gradient + row * width;
        real sum = real(0);
        for (size_type k = threadIdx.x; k < width; k += THREADS)
            sum += x[k] * g[k] * (scaled ? weight[k] : real(1));
        const real scale = inverse[row];
        const real shared = block_sum(sum, partial) / real(width) * scale * scale;
        for (size_type k = threadIdx.x; k < width; k += THREADS)
            result[row * width + k] = scale * (g[k] * (scaled ? weight[k] : real(1)) - x[k] * shared);
    }
}

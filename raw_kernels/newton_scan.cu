// Newton's step for the states at the boundaries of chunks, forward in time: step_k = mismatch_k +
// damping M_kᵀ step_{k-1}, where M_k is the product of the transposed Jacobians of chunk k, so that M_kᵀ
// says how the state behind the chunk moves with the one before it. Column j of M_k carries a power of two.
//
// A block a sample; a thread takes every blockDim-th column.

#include "prelude.cuh"

extern "C" __global__ void newton_scan(
    const real* __restrict__ maps,      // (chunks, batch, size, size): by columns
    const int* __restrict__ exponents,  // (chunks, batch, size)
    const real* __restrict__ mismatch,  // (chunks, size, batch): the state behind each chunk less the one
                                        // assumed there
    real* __restrict__ step,            // (chunks, size, batch) output only, what to add to the assumed
                                        // state behind each chunk
    size_type chunks, size_type size, size_type batch, double damping)
{
    extern __shared__ __align__(16) real shared[];
    for (size_type b = blockIdx.x; b < batch; b += gridDim.x) {
        real *now = shared, *next = shared + size;
        for (size_type j = threadIdx.x; j < size; j += blockDim.x) now[j] = real(0);
        __syncthreads();
        for (size_type k = 0; k < chunks; ++k) {
            const size_type map = k * batch + b;
            for (size_type j = threadIdx.x; j < size; j += blockDim.x) {
                const real* column = maps + (map * size + j) * size;
                real sum = 0;
                for (size_type i = 0; i < size; ++i) sum += column[i] * now[i];
                const size_type place = (k * size + j) * batch + b;
                step[place] = next[j]
                    = mismatch[place] + real(damping) * real(ldexp(sum, exponents[map * size + j]));
            }
            __syncthreads();
            real* const swapped = now;
            now = next;
            next = swapped;
        }
        __syncthreads();
    }
}

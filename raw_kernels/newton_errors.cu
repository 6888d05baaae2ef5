// How far Newton's iteration is, for each state (an LSTM has two) of each sample: the largest step by what is
// tolerated of the chunk's end, and the largest mismatch by the largest end of all chunks; NaN where a number is.
//
// A block a state of a sample, a thread every THREADS-th chunk; wants THREADS threads a block.

#include "prelude.cuh"

#define THREADS 256

// The larger one, NaN where one is.
__device__ __forceinline__ real larger(real a, real b) { return a > b || a != a ? a : b; }

extern "C" __global__ void newton_errors(
    const real* __restrict__ ends,      // (chunks * batch | states, hidden): the state behind each chunk
    const real* __restrict__ mismatch,  // (chunks, batch | states, hidden)
    const real* __restrict__ step,      // (chunks, batch | states, hidden)
    real* __restrict__ errors,          // (2, states, batch) output only
    size_type chunks, size_type states, size_type hidden, size_type batch, double tolerance, double least)
{
    __shared__ real shared[3][THREADS];
    for (size_type item = blockIdx.x; item < states * batch; item += gridDim.x) {
        const size_type state = item / batch, lane = item % batch;
        real error = 0, missed = 0, largest = 0;
        for (size_type k = threadIdx.x; k < chunks; k += THREADS) {
            size_type place = ((k * batch + lane) * states + state) * hidden;
            real size = 0, moved = 0;
#pragma unroll 4
            for (size_type u = 0; u < hidden; ++u) {
                size = larger(fabs(ends[place]), size);
                moved = larger(fabs(step[place]), moved);
                missed = larger(fabs(mismatch[place]), missed);
                ++place;
            }
            const real allowed = real(tolerance) * size;
            error = larger(moved / (allowed < real(least) ? real(least) : allowed), error);
            largest = larger(size, largest);
        }
        shared[0][threadIdx.x] = error;
        shared[1][threadIdx.x] = missed;
        shared[2][threadIdx.x] = largest;
        __syncthreads();
        for (int half = THREADS / 2; half > 0; half /= 2) {
            if (threadIdx.x < (unsigned)half)
                for (int k = 0; k < 3; ++k)
                    shared[k][threadIdx.x] = larger(shared[k][threadIdx.x + half], shared[k][threadIdx.x]);
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            const real size = shared[2][0];
            errors[item] = shared[0][0];
            errors[states * batch + item] = shared[1][0] / (size < real(least) ? real(least) : size);
        }
        __syncthreads();
    }
}

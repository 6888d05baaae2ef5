// The sum over a block of each thread's `value`, pairwise, given to all its threads. Wants a power of two of
// threads, and `partial` of as many in shared memory.

__device__ __forceinline__ real block_sum(real value, real* partial)
{
    partial[threadIdx.x] = value;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < (unsigned)half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    const real sum = partial[0];
    __syncthreads();
    return sum;
}

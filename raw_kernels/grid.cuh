// A barrier of all blocks of a cooperative launch. Where there is no __CUDA_ARCH__ the compiler is no CUDA compiler, and
// gives the barrier as a function.

// Counts arrivals in `arrived`, which is 0 before the launch and after it.
struct GridBarrier {
    long long* arrived;
    long long expected;

    __device__ __forceinline__ explicit GridBarrier(long long* arrived) : arrived(arrived), expected(0) {}

    // Waits for all blocks: what they wrote before is seen from here on.
    __device__ __forceinline__ void wait()
    {
#ifndef __CUDA_ARCH__
        barrier_grid_wait();
#else
        expected += gridDim.x;
        __syncthreads();
        if (threadIdx.x == 0) {
            asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(arrived) : "memory");
            long long seen;
            do asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(seen) : "l"(arrived) : "memory");
            while (seen < expected);
        }
        __syncthreads();
#endif
    }

    // Ends the use of the barrier: the last block that comes sets the count back.
    __device__ __forceinline__ void end()
    {
#ifdef __CUDA_ARCH__
        if (threadIdx.x == 0) {
            const unsigned long long before = atomicAdd(reinterpret_cast<unsigned long long*>(arrived), 1ull);
            if (before + 1 == expected + gridDim.x) *arrived = 0;
        }
#endif
    }
};

// Reading ahead. BLOCK is the block's number of threads.

#include "copies.cuh"

// Whether there are copies to shared memory that no register and no scoreboard waits for: from sm_80 on.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
const bool COPIES = false;
#else
const bool COPIES = true;
#endif

// What a thread reads of ROWS arrays, fetched AHEAD steps before it is used, to its own column of shared memory,
// or to registers where there are no copies.
template <int ROWS, int AHEAD>
struct Stage {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    real held[AHEAD][ROWS];

    __device__ __forceinline__ void fetch(int a, int row, const real* from) { held[a][row] = __ldca(from); }
    __device__ __forceinline__ real read(int a, int row) const { return held[a][row]; }
    __device__ __forceinline__ void close() {}

    template <int LEFT>
    __device__ __forceinline__ void wait()
    {
    }

#else
    real* column;

    __device__ __forceinline__ Stage()
    {
        __shared__ real columns[AHEAD * ROWS][BLOCK];
        column = columns[0] + threadIdx.x;
    }

    // Starts the copy of row `row` of a step to place a, from which all was read.
    __device__ __forceinline__ void fetch(int a, int row, const real* from)
    {
        copy_ahead(column + (a * ROWS + row) * BLOCK, from);
    }

    __device__ __forceinline__ real read(int a, int row) const { return column[(a * ROWS + row) * BLOCK]; }

    // Ends the copies of one step.
    __device__ __forceinline__ void close() { end_group(); }

    // Waits for all copies but those of the last LEFT steps.
    template <int LEFT>
    __device__ __forceinline__ void wait()
    {
        wait_for_groups<LEFT>();
    }
#endif

    // Starts the copies of the first steps of `count`: fetch(a, last) those of one, which may be the last.
    template <class Fetch>
    __device__ __forceinline__ void fill(int count, Fetch fetch)
    {
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            if (a < count) fetch(a, a == count - 1);
            close();
        }
    }

    // Starts those of the step AHEAD steps behind the one at place a, which was read; `left` steps are left
    // with that one.
    template <class Fetch>
    __device__ __forceinline__ void refill(int a, int left, Fetch fetch)
    {
        if (left > AHEAD) fetch(a, left == AHEAD + 1);
        close();
    }
};

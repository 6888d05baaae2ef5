// What a kernel's threads ask of the scheduler, which is compiled apart from the kernels (launch.cpp).

#pragma once

#include <stdint.h>

#pragma GCC visibility push(hidden)

struct uint3 {
    unsigned int x, y, z;
};

struct dim3 {
    unsigned int x, y, z;
    dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

// The running thread's position; `dim3` members compare and convert as in CUDA.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace emulator {

extern char* dynamic_shared;  // of the running block, exactly the bytes that were asked for

// The running thread's place in its warp.
int lane();

// The block's barrier, the operation `what` of the compiled text's `line`: how many threads gave `predicate`.
unsigned block_wait(const char* what, int line, bool predicate);

// An operation of the lanes of `mask`: the value of the lane `source`, or, where that is -1, the ballot.
uint64_t warp_wait(const char* what, int line, unsigned mask, uint64_t value, int source);

// Arrives at the barrier of the cluster, and waits there for its other threads.
void cluster_arrive(int line);
void cluster_wait(int line);

// Where `own`, an address of this block's dynamic shared memory, lies in that of the cluster's block `rank`.
void* shared_of_peer(const void* own, unsigned rank, int line);

// cp.async of some bytes, its groups, and the wait until at most `left` of them are under way.
void start_copy(void* to, const void* from, unsigned bytes, int line);
void end_group();
void wait_for_groups(unsigned left);

}  // namespace emulator

#pragma GCC visibility pop

// What the scheduler tells races.cpp of a launch, where kernels are compiled with EMULATOR_RACES and
// -fsanitize=thread, whose calls at every access to memory go there too. Elsewhere nothing is told.

#pragma once

#include <stddef.h>

namespace emulator {
namespace races {

#ifdef EMULATOR_RACES
#define EMULATOR_TELL __attribute__((visibility("hidden")))
#define EMULATOR_TOLD ;
#else
#define EMULATOR_TELL inline
#define EMULATOR_TOLD {}
#endif

// A launch begins: where to tell what went wrong; the dynamic shared memory of each block of a cluster. After it nothing
// is watched.
EMULATOR_TELL void start(void (*fail)(const char*, ...)) EMULATOR_TOLD
EMULATOR_TELL void add_shared(char* shared, size_t bytes, unsigned rank) EMULATOR_TOLD
EMULATOR_TELL void finish() EMULATOR_TOLD

// A cluster of so many blocks of `threads` begins, by its first block's number in the grid.
EMULATOR_TELL void start_cluster(size_t first, unsigned blocks, unsigned threads) EMULATOR_TOLD

// What follows is done by this thread of the cluster; it has ended.
EMULATOR_TELL void run(unsigned thread) EMULATOR_TOLD
EMULATOR_TELL void end() EMULATOR_TOLD

// All living threads of the cluster's block `rank`, or of these lanes behind thread `first`, have come to a barrier.
EMULATOR_TELL void block_barrier(unsigned rank) EMULATOR_TOLD
EMULATOR_TELL void warp_barrier(unsigned first, unsigned lanes) EMULATOR_TOLD

// The running thread arrives at the barrier of the cluster; all its living threads have.
EMULATOR_TELL void cluster_arrive() EMULATOR_TOLD
EMULATOR_TELL void cluster_barrier() EMULATOR_TOLD

// The running thread starts a copy to these bytes; it has waited for it.
EMULATOR_TELL void start_copy(const void* to, size_t bytes) EMULATOR_TOLD
EMULATOR_TELL void end_copy(const void* to, size_t bytes) EMULATOR_TOLD

// Whether the accesses that follow are parts of an atomic operation.
EMULATOR_TELL void set_atomic(bool atomic) EMULATOR_TOLD

struct Atomic {
    Atomic() { set_atomic(true); }
    ~Atomic() { set_atomic(false); }
};

#undef EMULATOR_TOLD
#undef EMULATOR_TELL

}  // namespace races
}  // namespace emulator

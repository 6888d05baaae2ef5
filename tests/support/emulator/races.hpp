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

// A launch begins: its dynamic shared memory, and where to tell what went wrong. After it nothing is watched.
EMULATOR_TELL void start(char* shared, size_t bytes, void (*fail)(const char*, ...)) EMULATOR_TOLD
EMULATOR_TELL void finish() EMULATOR_TOLD

// A block of `threads` begins, by its number in the grid.
EMULATOR_TELL void start_block(size_t block, unsigned threads) EMULATOR_TOLD

// What follows is done by this thread of the block; it has ended.
EMULATOR_TELL void run(unsigned thread) EMULATOR_TOLD
EMULATOR_TELL void end() EMULATOR_TOLD

// All living threads of the block, or of these lanes behind thread `first`, have come to a barrier.
EMULATOR_TELL void block_barrier() EMULATOR_TOLD
EMULATOR_TELL void warp_barrier(unsigned first, unsigned lanes) EMULATOR_TOLD

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

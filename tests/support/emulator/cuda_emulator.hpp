// What a .cu text takes from the CUDA language, for g++. It is included before the text, whose
// `extern __shared__` declarations have become `EMULATOR_DYNAMIC_SHARED(type, name);`.
//
// Left out on purpose, so that a text that takes them does not compile: __activemask (its value is
// not defined by the language), and whatever sm_75 lacks.

#pragma once

#include "cuda_math.hpp"
#include "threads.hpp"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__

#define EMULATOR_DYNAMIC_SHARED(type, name) \
    static type*& name = reinterpret_cast<type*&>(emulator::dynamic_shared)

// ---- barriers and fences ----

inline void __syncthreads(int line = __builtin_LINE()) { emulator::block_wait("__syncthreads", line, false); }

inline int __syncthreads_count(int predicate, int line = __builtin_LINE())
{
    return int(emulator::block_wait("__syncthreads_count", line, predicate));
}

inline int __syncthreads_or(int predicate, int line = __builtin_LINE())
{
    return emulator::block_wait("__syncthreads_or", line, predicate) != 0;
}

inline int __syncthreads_and(int predicate, int line = __builtin_LINE())
{
    return emulator::block_wait("__syncthreads_and", line, !predicate) == 0;
}

inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE())
{
    emulator::warp_wait("__syncwarp", line, mask, 0, -1);
}

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// ---- votes ----

inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
    return unsigned(emulator::warp_wait("__ballot_sync", line, mask, predicate != 0, -1));
}

inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
    return emulator::warp_wait("__any_sync", line, mask, predicate != 0, -1) != 0;
}

inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
    return emulator::warp_wait("__all_sync", line, mask, predicate == 0, -1) == 0;
}

// ---- shuffles ----

namespace emulator {

template <typename T>
T exchange(const char* what, int line, unsigned mask, T value, int source)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle takes 32- and 64-bit types");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = warp_wait(what, line, mask, bits, source);
    memcpy(&value, &bits, sizeof value);
    return value;
}

}  // namespace emulator

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, int line = __builtin_LINE())
{
    int source = (emulator::lane() & ~(width - 1)) + (lane & (width - 1));
    return emulator::exchange("__shfl_sync", line, mask, value, source);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE())
{
    int self = emulator::lane(), source = self - int(delta);
    if (source < (self & ~(width - 1))) source = self;
    return emulator::exchange("__shfl_up_sync", line, mask, value, source);
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE())
{
    int self = emulator::lane(), source = self + int(delta);
    if (source > (self | (width - 1))) source = self;
    return emulator::exchange("__shfl_down_sync", line, mask, value, source);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE())
{
    int self = emulator::lane(), source = self ^ bits;
    if (source > (self | (width - 1))) source = self;
    return emulator::exchange("__shfl_xor_sync", line, mask, value, source);
}

// ---- clusters ----

inline void barrier_cluster_arrive(int line = __builtin_LINE()) { emulator::cluster_arrive(line); }
inline void barrier_cluster_wait(int line = __builtin_LINE()) { emulator::cluster_wait(line); }

// The barrier of all blocks of a cooperative launch, which runs as one cluster.
inline void barrier_grid_wait(int line = __builtin_LINE())
{
    emulator::cluster_arrive(line);
    emulator::cluster_wait(line);
}

template <class Value>
inline Value* mapa(Value* own, unsigned rank, int line = __builtin_LINE())
{
    return static_cast<Value*>(emulator::shared_of_peer(own, rank, line));
}

// ---- copies to shared memory ----

// cp.async.shared.global of a value of 4, 8 or 16 bytes.
template <class Value>
inline void cp_async(Value* to, const Value* from, int line = __builtin_LINE())
{
    static_assert(sizeof(Value) == 4 || sizeof(Value) == 8 || sizeof(Value) == 16,
                  "cp.async takes 4, 8 or 16 bytes");
    emulator::start_copy(to, from, sizeof(Value), line);
}

inline void cp_async_commit_group() { emulator::end_group(); }

inline void cp_async_wait_group(unsigned left) { emulator::wait_for_groups(left); }

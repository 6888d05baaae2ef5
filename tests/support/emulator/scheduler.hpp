// One launch: its clusters of blocks one after another, a block being a cluster of one unless the text says more; the
// threads of a cluster as fibers. Static __shared__ arrays have one place: those of the block whose thread runs lie
// there, and those of the others are kept beside.
//
// A thread runs until it waits for others or ends; a fiber whose thread has ended takes the next
// one, so a kernel without barriers runs on a single fiber and never switches. Threads that are
// released run in the launch's order (orders.hpp) before new ones start. Nothing here is preemptive:
// a race shows as a difference between two orders, or is found by races.hpp.
//
// When nothing can run, the waits are resolved: a warp operation whose lanes have all come, else
// the barrier of a block or of the cluster if all its living threads stand at it, else the launch fails with
// the places at which the threads wait. In a random order, warps are held back at random, so that some run ahead.

#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fibers.hpp"
#include "orders.hpp"
#include "races.hpp"
#include "threads.hpp"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulator {

constexpr unsigned max_cluster = 64, max_threads = 1024 * 16;

enum State : unsigned char { unstarted, running, ready, at_barrier, at_warp, at_cluster, ended };

// Where a static __shared__ array begins, and its bytes.
struct Shared {
    char* begin;
    size_t bytes;
};

struct Thread {
    uint3 index;
    State state;
    Context* fiber;    // that holds it while it waits
    const char* what;  // the operation it waits at, and its line in the compiled text
    int line;
    bool arrived;      // at the cluster's barrier, for which it is yet to wait
    unsigned mask;     // lanes that take part, of a warp operation
    int source;        // lane whose value it asks for; -1 asks for the ballot
    uint64_t value, result;
};

struct Launch {
    void (*entry)(void**);
    void** arguments;
    Order order;
    char* message;  // of the first error; empty while there is none
    size_t message_bytes;

    Context scheduler;
    Context fibers[max_threads];
    Context* idle[max_threads];
    unsigned fibers_made, idle_count;
    char* stacks;
    size_t stack_bytes;

    Thread threads[max_threads];
    unsigned turns[max_threads];               // the cluster's threads in the launch's order
    unsigned count, next, living;              // threads of a cluster: all, started, not ended
    unsigned cluster, block_threads, rank;     // blocks of a cluster, threads of one, the one whose thread runs
    unsigned first_x;                          // blockIdx.x of the cluster's first block
    char* dynamic[max_cluster];                // shared memory of each block of the cluster, and its bytes
    size_t dynamic_bytes;
    const Shared* statics;
    size_t statics_count;
    char* kept[max_cluster];                   // static arrays of the blocks whose threads do not run
    unsigned queue[max_threads], head, tail;   // released threads, in the order they will run
    Thread* current;
};

Launch launch;
char* dynamic_shared;

inline bool failed() { return launch.message[0] != 0; }

inline void fail(const char* format, ...)
{
    if (failed()) return;
    int used = snprintf(launch.message, launch.message_bytes, "block (%u, %u, %u): ", blockIdx.x,
                        blockIdx.y, blockIdx.z);
    va_list values;
    va_start(values, format);
    vsnprintf(launch.message + used, launch.message_bytes - used, format, values);
    va_end(values);
}

// A thread's number in its cluster; a cluster of more than one block has blocks of whole warps.
inline unsigned number(const Thread& thread) { return unsigned(&thread - launch.threads); }

// Brings in the shared memory of the cluster's block of this rank.
__attribute__((no_sanitize("address", "thread"), noinline)) inline void enter(unsigned rank)
{
    if (rank == launch.rank) return;
    char *out = launch.kept[launch.rank], *in = launch.kept[rank];
    for (size_t i = 0; i < launch.statics_count; ++i) {
        const Shared& shared = launch.statics[i];
        memcpy(out, shared.begin, shared.bytes);
        memcpy(shared.begin, in, shared.bytes);
        out += shared.bytes;
        in += shared.bytes;
    }
    launch.rank = rank;
    blockIdx.x = launch.first_x + rank;
    dynamic_shared = launch.dynamic[rank];
}

int lane() { return int(number(*launch.current) % 32); }

inline void make_current(Thread& thread)
{
    thread.state = running;
    launch.current = &thread;
    threadIdx = thread.index;
    enter(number(thread) / launch.block_threads);
    races::run(number(thread));
}

// What every fiber runs: threads that have not started, one after another.
inline void fiber_main()
{
    Context& self = launch.fibers[launch.fibers_made - 1];
    arrive(launch.scheduler);
    for (;;) {
        while (launch.next < launch.count && !failed()) {
            make_current(launch.threads[launch.turns[launch.next++]]);
            launch.current->fiber = &self;
            launch.entry(launch.arguments);
            launch.current->state = ended;
            races::end();
            --launch.living;
        }
        launch.idle[launch.idle_count++] = &self;
        launch.current = nullptr;
        switch_context(self, launch.scheduler);
    }
}

// Leaves the running thread until it is released.
inline void wait(State state, const char* what, int line)
{
    Thread& self = *launch.current;
    self.state = state;
    self.what = what;
    self.line = line;
    switch_context(*self.fiber, launch.scheduler);
    make_current(self);
}

inline void release(Thread& thread)
{
    thread.state = ready;
    launch.queue[launch.tail++ % max_threads] = number(thread);
}

// ---- the block's barrier ----

unsigned block_wait(const char* what, int line, bool predicate)
{
    launch.current->value = predicate;
    launch.current->mask = 0;
    wait(at_barrier, what, line);
    return unsigned(launch.current->result);
}

// Releases the threads of the cluster's block of this rank.
inline bool release_barrier(unsigned rank)
{
    uint64_t holds = 0;
    const Thread* first = nullptr;
    const unsigned begin = rank * launch.block_threads, end = begin + launch.block_threads;
    for (unsigned i = begin; i < end; ++i) {
        const Thread& thread = launch.threads[i];
        if (thread.state == ended) continue;
        if (thread.state != at_barrier) return false;
        if (!first) first = &thread;
        if (thread.line != first->line || strcmp(thread.what, first->what)) return false;
        holds += thread.value;
    }
    if (!first) return false;
    races::block_barrier(rank);
    for (unsigned turn = 0; turn < launch.count; ++turn) {
        Thread& thread = launch.threads[launch.turns[turn]];
        if (thread.state == ended || launch.turns[turn] / launch.block_threads != rank) continue;
        thread.result = holds;
        release(thread);
    }
    return true;
}

// ---- the cluster's barrier, and the shared memory of its blocks ----

void cluster_arrive(int line)
{
    if (launch.current->arrived)
        fail("barrier.cluster.arrive at line %d: the thread has arrived before, and has not waited", line);
    launch.current->arrived = true;
    races::cluster_arrive();
}

void cluster_wait(int line)
{
    if (!launch.current->arrived) fail("barrier.cluster.wait at line %d: the thread has not arrived", line);
    wait(at_cluster, "barrier.cluster.wait", line);
}

inline bool release_cluster()
{
    for (unsigned i = 0; i < launch.count; ++i)
        if (launch.threads[i].state != ended && launch.threads[i].state != at_cluster) return false;
    races::cluster_barrier();
    for (unsigned turn = 0; turn < launch.count; ++turn) {
        Thread& thread = launch.threads[launch.turns[turn]];
        if (thread.state == ended) continue;
        thread.arrived = false;
        release(thread);
    }
    return true;
}

void* shared_of_peer(const void* own, unsigned rank, int line)
{
    const size_t place = size_t(static_cast<const char*>(own) - dynamic_shared);
    if (place >= launch.dynamic_bytes)
        fail("mapa at line %d: the address is not in dynamic shared memory, and no other is emulated", line);
    else if (rank >= launch.cluster)
        fail("mapa at line %d: there is no block %u in a cluster of %u", line, rank, launch.cluster);
    else {
        bool lives = false;
        for (unsigned i = 0; i < launch.block_threads && !lives; ++i) {
            const State state = launch.threads[rank * launch.block_threads + i].state;
            lives = state != unstarted && state != ended;
        }
        if (lives) return launch.dynamic[rank] + place;
        fail("mapa at line %d: block %u of the cluster has not started, or has ended", line, rank);
    }
    return const_cast<void*>(own);
}

// ---- operations of a warp ----

// Releases the lanes of the mask at which `asking` waits, if all of them that live have come.
// A lane that has ended, or that the block does not have, gives `absent`: CUDA leaves it undefined.
inline bool release_warp(const Thread& asking)
{
    const uint64_t absent = 0x7FF7A5A57FA7A5A5;  // NaN as float and as double
    unsigned first = number(asking) / 32 * 32, ballot = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
        if (!(asking.mask >> lane & 1) || first + lane >= launch.count) continue;
        const Thread& thread = launch.threads[first + lane];
        if (thread.state == ended) continue;
        if (thread.state != at_warp || thread.mask != asking.mask || strcmp(thread.what, asking.what))
            return false;
        if (thread.line != asking.line && strcmp(asking.what, "__syncwarp")) return false;
        if (thread.value) ballot |= 1u << lane;
    }
    // Shuffles and votes order no access to memory.
    if (!strcmp(asking.what, "__syncwarp")) races::warp_barrier(first, asking.mask);
    unsigned char lanes[32];
    launch.order.fill(lanes, 32);
    for (unsigned lane : lanes) {
        if (!(asking.mask >> lane & 1) || first + lane >= launch.count) continue;
        Thread& thread = launch.threads[first + lane];
        if (thread.state != at_warp) continue;
        if (thread.source < 0) {
            thread.result = ballot;
        } else {
            unsigned source = first + thread.source;
            bool present = source < launch.count && asking.mask >> thread.source & 1 &&
                           launch.threads[source].state != ended;
            thread.result = present ? launch.threads[source].value : absent;
        }
        release(thread);
    }
    return true;
}

uint64_t warp_wait(const char* what, int line, unsigned mask, uint64_t value, int source)
{
    Thread& self = *launch.current;
    unsigned lane = number(self) % 32;
    if (!(mask >> lane & 1))
        fail("%s at line %d: lane %u is not in its own mask 0x%08x", what, line, lane, mask);
    self.mask = mask;
    self.value = value;
    self.source = source;
    wait(at_warp, what, line);
    return self.result;
}

// Releases what waits in the warps but those of the bits `held_back`.
inline bool release_warps(uint64_t held_back)
{
    bool any = false;
    for (unsigned turn = 0; turn < launch.count; ++turn) {
        Thread& thread = launch.threads[launch.turns[turn]];
        if (held_back >> number(thread) / 32 % 64 & 1) continue;
        if (thread.state == at_warp && release_warp(thread)) any = true;
    }
    return any;
}

}  // namespace emulator

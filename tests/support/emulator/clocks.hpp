// Which accesses to memory come before the running thread's next one, as CUDA orders them: those of its own;
// within its block those that came before a barrier of the block or, of its warp, before a __syncwarp of both; within
// its cluster those that came before the arrival at a barrier of the cluster; what follows from these one after
// another. Nothing else orders blocks of one launch, and a thread that has ended comes to no barrier.
//
// Each thread counts the barriers it comes to, and what it has seen of the lanes of its warp (a vector clock). What
// a barrier of the block orders is kept once for all.

#pragma once

#include <stddef.h>
#include <stdint.h>

namespace emulator {
namespace races {

constexpr unsigned blocks_at_most = 64, threads_at_most = 1024 * 16;
constexpr unsigned nobody = threads_at_most, several = threads_at_most + 1;

enum Kind : unsigned char { reads, writes, updates, copies };

// One access: who, when, where in the program.
struct Access {
    uint32_t clock = 0;
    uint32_t place = 0;  // bytes from the start of the shared object
    uint32_t block = 0;  // its number + 1; 0: there was no access
    uint16_t thread = 0;  // of its cluster
    Kind kind = reads;  // `copies` until the copy was waited for

    bool exists() const { return block != 0; }
};

class Clocks {
public:
    unsigned current = nobody;  // the running thread
    unsigned blocks = 1, block_threads = 1;  // of a cluster, of a block

    void start_cluster(size_t number, unsigned of_cluster, unsigned threads)
    {
        first = uint32_t(number) + 1;
        blocks = of_cluster;
        block_threads = threads;
        count = blocks * threads;
        for (uint32_t& one : barriers) one = 0;
        current = nobody;
        for (unsigned i = 0; i < count; ++i) {
            clock[i] = 1;
            published[i] = published_to_cluster[i] = arrived[i] = 0;
            has_ended[i] = false;
            for (uint32_t& one : seen[i]) one = 0;
        }
    }

    // Of the running thread: its block's place in the cluster, and that one's number + 1.
    unsigned rank() const { return current / block_threads; }
    uint32_t block() const { return first + rank(); }

    // Whether a block, by its number + 1, is of the running cluster.
    bool runs(uint32_t block) const { return block >= first && block < first + blocks; }

    void end() { has_ended[current] = true; }

    void block_barrier(unsigned of)
    {
        ++barriers[of];
        for (unsigned i = of * block_threads; i < (of + 1) * block_threads; ++i) {
            if (!has_ended[i]) {
                published[i] = clock[i]++;
                continue;
            }
            // What living lanes have seen of one that has ended.
            for (unsigned other = i / 32 * 32; other < count && other < i / 32 * 32 + 32; ++other)
                if (!has_ended[other] && seen[other][i % 32] > published[i]) published[i] = seen[other][i % 32];
        }
    }

    void cluster_arrive() { arrived[current] = clock[current]++; }

    void cluster_barrier()
    {
        for (uint32_t& one : barriers) ++one;
        for (unsigned i = 0; i < count; ++i) {
            // What its block has seen of a thread that has ended, it hands on.
            published_to_cluster[i] = has_ended[i] ? published[i] : arrived[i];
            if (published[i] < published_to_cluster[i]) published[i] = published_to_cluster[i];
        }
    }

    void warp_barrier(unsigned first, unsigned lanes)
    {
        uint32_t joined[32] = {};
        const auto comes = [&](unsigned lane) {
            return lanes >> lane & 1 && first + lane < count && !has_ended[first + lane];
        };
        for (unsigned lane = 0; lane < 32; ++lane) {
            if (!comes(lane)) continue;
            for (unsigned of = 0; of < 32; ++of)
                if (seen[first + lane][of] > joined[of]) joined[of] = seen[first + lane][of];
        }
        for (unsigned lane = 0; lane < 32; ++lane)
            if (comes(lane)) joined[lane] = clock[first + lane]++;
        for (unsigned lane = 0; lane < 32; ++lane)
            for (unsigned of = 0; comes(lane) && of < 32; ++of) seen[first + lane][of] = joined[of];
    }

    // An access of the running thread, now.
    Access access(Kind kind, uint32_t place) const
    {
        Access made;
        made.clock = clock[current];
        made.place = place;
        made.block = block();
        made.thread = uint16_t(current);
        made.kind = kind;
        return made;
    }

    // Atomic operations of several threads as one access, in whose place the last one stands.
    Access together(const Access& before, const Access& after) const
    {
        Access made = after;
        made.thread = several;
        made.clock = barriers[rank()];
        if (before.block != block()) made.block = UINT32_MAX;
        return made;
    }

    // Whether a barrier of the running block, or of its cluster, came after `access`.
    bool is_published(const Access& access) const
    {
        if (access.thread == several) return access.block == block() && access.clock < barriers[rank()];
        if (access.block == block()) return access.clock <= published[access.thread];
        return runs(access.block) && access.clock <= published_to_cluster[access.thread];
    }

    // Whether `access` comes before what the running thread does now.
    bool is_ordered(const Access& access) const
    {
        if (access.kind == copies || !runs(access.block)) return false;
        if (access.thread == current || is_published(access)) return true;
        return access.block == block() && access.thread / 32 == current / 32 && access.clock <= seen[current][access.thread % 32];
    }

private:
    unsigned count = 0;
    uint32_t first = 0;                 // the cluster's first block's number + 1
    uint32_t barriers[blocks_at_most];  // that each block has come to
    uint32_t clock[threads_at_most], published[threads_at_most], seen[threads_at_most][32];
    uint32_t published_to_cluster[threads_at_most], arrived[threads_at_most];
    bool has_ended[threads_at_most];
};

}  // namespace races
}  // namespace emulator

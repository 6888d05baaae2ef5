// Races: two threads touch one word of shared or global memory, one of them writes, and nothing orders them
// (clocks.hpp). Kernels are compiled with -fsanitize=thread, which calls the functions below before each access;
// this file is not, and is linked with each of them in place of ThreadSanitizer's own library.
//
// A cell for each word that is watched holds the last write and the reads since. Any order of threads shows the
// races of what the kernel did in it, whether values differ or not.

#include "races.hpp"
#include "sectors.hpp"

#include <stdio.h>

#include <string>
#include <vector>

#include "clocks.hpp"

extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start[];

namespace emulator {
namespace races {
namespace {

Clocks clocks;
Sectors sectors;
void (*report)(const char*, ...);
bool atomic;

// The reads of a word that came before no later write of it. Since only a barrier of the block orders warps, and one of
// the cluster blocks, lanes of one warp, one thread of another and one of another block are enough: a write races with
// one of all reads if with one of these.
struct Reads {
    Access lanes[32];
    Access of_other_warp, of_other_block;
    uint32_t block = 0;
    unsigned warp = 0;

    template <typename Report>
    void check(Report check_one) const
    {
        for (const Access& read : lanes) check_one(read);
        check_one(of_other_warp);
        check_one(of_other_block);
    }

    void add(const Access& read)
    {
        if (block != read.block) {
            for (const Access& lane : lanes) {
                if (!lane.exists() || clocks.is_published(lane)) continue;
                // Whoever writes races with one of these two.
                if (of_other_block.exists() && !clocks.is_published(of_other_block)) return;
                of_other_block = lane;
            }
            start(read);
        }
        if (read.thread / 32 != warp) {
            if (of_other_warp.exists() && !clocks.is_published(of_other_warp)) return;
            for (const Access& lane : lanes)
                if (lane.exists() && !clocks.is_published(lane)) {
                    of_other_warp = read;
                    return;
                }
            start(read);
        }
        lanes[read.thread % 32] = read;
    }

private:
    void start(const Access& read)
    {
        for (Access& lane : lanes) lane = Access();
        of_other_warp = Access();
        block = read.block;
        warp = read.thread / 32;
    }
};

// Whose shared memory a range is, beside the ranks of a cluster's blocks.
constexpr int of_each = -1, of_none = -2;

struct Cell {
    Access write;
    uint32_t reads = 0;  // 1 + its place among the range's
};

// Memory that is watched, in words of some bytes.
struct Range {
    std::string name;
    uintptr_t begin, end;
    unsigned word;
    int owner;
    std::vector<Cell> cells;  // of static shared memory as many for each block of a cluster
    std::vector<Reads> reads;

    Range(const char* name, uintptr_t begin, size_t bytes, unsigned word, int owner)
        : name(name), begin(begin), end(begin + bytes), word(word), owner(owner), cells(bytes / word)
    {
    }

    bool is_shared() const { return owner != of_none; }

    void fail(size_t at, const Access& before, const Access& now) const
    {
        static const char* const present[] = {"reads it", "writes it", "updates it", "starts a copy to it"};
        static const char* const past[] = {"read it", "wrote it", "updated it", "copies to it and has not waited"};
        char word[64], who[64];
        snprintf(word, sizeof word, is_shared() ? "byte %zu of shared " : "", at);
        std::string where = word + name;
        if (!is_shared()) where += "[" + std::to_string(at) + "]";
        if (is_shared() && clocks.blocks > 1)
            where += " of the cluster's block " + std::to_string(owner == of_each ? int(clocks.rank()) : owner);
        if (before.thread == several) snprintf(who, sizeof who, "one of several threads");
        else snprintf(who, sizeof who, "thread %u of block %u", before.thread % clocks.block_threads,
                      before.block - 1);
        report("a race on %s: %s %s at @%x, thread %u of block %u %s at @%x, and nothing orders them",
               where.c_str(), who, past[before.kind], before.place, now.thread % clocks.block_threads,
               now.block - 1,
               present[now.kind], now.place);
    }

    // The cell of a word of the running block's.
    Cell& cell_of(size_t at) { return cells[(owner == of_each ? clocks.rank() * words() : 0) + at]; }
    size_t words() const { return (end - begin) / word; }

    void touch(size_t at, const Access& now)
    {
        Cell& cell = cell_of(at);
        if (is_shared() && !clocks.runs(cell.write.block)) cell.write = Access();
        const bool both_atomic = now.kind == updates && cell.write.kind == updates;
        const bool ordered = !cell.write.exists() || clocks.is_ordered(cell.write);
        if (!ordered && !both_atomic) return fail(at, cell.write, now);
        if (now.kind == races::reads) {
            if (!cell.reads) {
                reads.emplace_back();
                cell.reads = uint32_t(reads.size());
            }
            return reads[cell.reads - 1].add(now);
        }
        if (cell.reads) {
            Reads& all = reads[cell.reads - 1];
            all.check([&](const Access& read) {
                if (read.exists() && !clocks.is_ordered(read)) fail(at, read, now);
            });
            all = Reads();
        }
        cell.write = ordered ? now : clocks.together(cell.write, now);
    }

    // Calls act(cell number) for what these bytes touch.
    template <typename Act>
    void each(uintptr_t address, size_t bytes, Act act)
    {
        const size_t first = (address - begin) / word, last = (address + bytes - 1 - begin) / word;
        for (size_t at = first; at <= last && at < words(); ++at) act(at);
    }
};

std::vector<Range> ranges;

Range* range_of(uintptr_t address)
{
    static size_t latest;
    if (latest < ranges.size() && address >= ranges[latest].begin && address < ranges[latest].end)
        return &ranges[latest];
    for (latest = 0; latest < ranges.size(); ++latest)
        if (address >= ranges[latest].begin && address < ranges[latest].end) return &ranges[latest];
    return nullptr;
}

void touch(const void* address, size_t bytes, Kind kind, void* caller)
{
    if (clocks.current == nobody || !bytes) return;
    const uintptr_t at = reinterpret_cast<uintptr_t>(address);
    Range* const range = range_of(at);
    if (!range) return;
    if (!range->is_shared()) sectors.touch(range->name, caller, clocks.current, at - range->begin, bytes);
    const Access now = clocks.access(kind, uint32_t(static_cast<const char*>(caller) - __ehdr_start));
    range->each(at, bytes, [&](size_t cell) { range->touch(cell, now); });
}

}  // namespace

void start(void (*fail)(const char*, ...)) { report = fail; }

void add_shared(char* shared, size_t bytes, unsigned rank)
{
    if (bytes) ranges.emplace_back("memory", reinterpret_cast<uintptr_t>(shared), bytes, 1, int(rank));
}

void finish()
{
    ranges.clear();
    sectors.barrier();
    clocks.current = nobody;
}

void start_cluster(size_t first, unsigned blocks, unsigned threads)
{
    clocks.start_cluster(first, blocks, threads);
    sectors.barrier();
    for (Range& range : ranges) {
        if (range.owner == of_each) range.cells.resize(range.words() * blocks);
        if (range.is_shared() && !range.reads.empty()) {
            for (Cell& cell : range.cells) cell.reads = 0;
            range.reads.clear();
        }
    }
}

void run(unsigned thread) { clocks.current = thread; }

void end()
{
    clocks.end();
    clocks.current = nobody;
}

void block_barrier(unsigned rank)
{
    clocks.block_barrier(rank);
    sectors.barrier();
}

void cluster_arrive() { clocks.cluster_arrive(); }

void cluster_barrier()
{
    clocks.cluster_barrier();
    sectors.barrier();
}

void warp_barrier(unsigned first, unsigned lanes) { clocks.warp_barrier(first, lanes); }

void start_copy(const void* to, size_t bytes) { touch(to, bytes, copies, __builtin_return_address(0)); }

void end_copy(const void* to, size_t bytes)
{
    const uintptr_t address = reinterpret_cast<uintptr_t>(to);
    Range* const range = range_of(address);
    if (!range) return;
    range->each(address, bytes, [&](size_t at) {
        Access& write = range->cell_of(at).write;
        if (write.kind == copies && write.thread == clocks.current)
            write = clocks.access(writes, write.place);
    });
}

void set_atomic(bool is_atomic) { atomic = is_atomic; }

}  // namespace races
}  // namespace emulator

// Watches `bytes` from `address` on in the next launch, as words of `word` bytes.
extern "C" __attribute__((visibility("default"))) void emulator_watch(
    const char* name, size_t address, size_t bytes, unsigned word, int is_shared)
{
    using namespace emulator::races;
    ranges.emplace_back(name, address, bytes, word, is_shared ? of_each : of_none);
}

// Whether sectors are counted from here on; forgets earlier counts.
extern "C" __attribute__((visibility("default"))) void emulator_count_sectors(int counts)
{
    emulator::races::sectors = emulator::races::Sectors(counts != 0);
}

// Counts an array (..., batch, width) as if samples were neighbours.
extern "C" __attribute__((visibility("default"))) void emulator_turn(const char* name, size_t batch, size_t width)
{
    emulator::races::sectors.turn(name, batch, width);
}

// How many accesses of warps to this array there were, and how many sectors they took.
extern "C" __attribute__((visibility("default"))) void emulator_sectors(const char* name, uint64_t counted[2])
{
    const auto& found = emulator::races::sectors.counted[name];
    counted[0] = found.phases;
    counted[1] = found.turns;
}

// ---- what -fsanitize=thread calls ----

#define HOOK extern "C" __attribute__((visibility("hidden"))) void

#define SEEN(address, bytes, kind)                                                               \
    emulator::races::touch(address, bytes,                                                       \
                           emulator::races::atomic ? emulator::races::updates : emulator::races::kind, \
                           __builtin_return_address(0))

#define ACCESS(bytes)                                                                 \
    HOOK __tsan_read##bytes(void* address) { SEEN(address, bytes, reads); }           \
    HOOK __tsan_write##bytes(void* address) { SEEN(address, bytes, writes); }         \
    HOOK __tsan_unaligned_read##bytes(void* address) { SEEN(address, bytes, reads); } \
    HOOK __tsan_unaligned_write##bytes(void* address) { SEEN(address, bytes, writes); }

ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

HOOK __tsan_read_range(void* address, size_t bytes) { SEEN(address, bytes, reads); }
HOOK __tsan_write_range(void* address, size_t bytes) { SEEN(address, bytes, writes); }
HOOK __tsan_vptr_update(void** address, void*) { SEEN(address, sizeof(void*), writes); }
HOOK __tsan_init() {}
HOOK __tsan_func_entry(void*) {}
HOOK __tsan_func_exit() {}

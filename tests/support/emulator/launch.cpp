// Running a grid: every cluster from poisoned shared memory to its last thread. Compiled once, and linked with each
// kernel.

#include "copies.hpp"

namespace emulator {

// All ones: NaN as float and as double.
__attribute__((no_sanitize("address", "thread"), noinline)) inline void poison(const Shared& shared)
{
    for (volatile char* byte = shared.begin; byte < shared.begin + shared.bytes; ++byte) *byte = char(0xFF);
}

// Fails with the places at which the threads wait, equal neighbours taken together.
inline void fail_deadlock()
{
    char places[600];
    size_t used = 0;
    for (unsigned first = 0, last; first < launch.count; first = last) {
        const Thread& thread = launch.threads[first];
        last = first + 1;
        while (last < launch.count && launch.threads[last].state == thread.state &&
               (thread.state == ended || (launch.threads[last].what == thread.what &&
                                          launch.threads[last].line == thread.line &&
                                          launch.threads[last].mask == thread.mask)))
            ++last;
        if (used > sizeof places - 120) continue;
        used += snprintf(places + used, sizeof places - used, "%sthreads %u to %u ", used ? "; " : "", first,
                         last - 1);
        if (thread.state == ended)
            used += snprintf(places + used, sizeof places - used, "have ended");
        else
            used += snprintf(places + used, sizeof places - used, "wait at %s on line %d", thread.what,
                             thread.line);
        if (thread.state == at_warp)
            used += snprintf(places + used, sizeof places - used, " with mask 0x%08x", thread.mask);
    }
    fail("not all threads that must come to a barrier or a warp operation do: %s", places);
}

inline void resume(Context& fiber) { switch_context(launch.scheduler, fiber); }

inline void start_thread()
{
    if (!launch.idle_count) {
        unsigned slot = launch.fibers_made++;
        make_context(launch.fibers[slot], launch.stacks + slot * launch.stack_bytes, launch.stack_bytes,
                     fiber_main);
        resume(launch.fibers[slot]);
    } else {
        resume(*launch.idle[--launch.idle_count]);
    }
}

// The thread that runs next of those that are released.
inline Thread& take_released()
{
    unsigned* const queue = launch.queue;
    const unsigned first = launch.head++ % max_threads, waiting = launch.tail - launch.head + 1;
    const unsigned taken = launch.order.is_random()
                               ? (first + unsigned(launch.order.below(waiting))) % max_threads
                               : first;
    const unsigned thread = queue[taken];
    queue[taken] = queue[first];
    return launch.threads[thread];
}

inline bool release()
{
    if ((launch.order.is_random() && release_warps(launch.order.draw())) || release_warps(0)) return true;
    bool any = false;
    for (unsigned rank = 0; rank < launch.cluster; ++rank) any |= release_barrier(rank);
    return any || release_cluster();
}

// The blocks of a cluster, from block number `first` on.
inline void run_cluster(size_t first)
{
    launch.next = launch.head = launch.tail = 0;
    launch.living = launch.count = launch.cluster * launch.block_threads;
    launch.order.fill(launch.turns, launch.count);
    unsigned i = 0;
    for (unsigned rank = 0; rank < launch.cluster; ++rank)
        for (unsigned z = 0; z < blockDim.z; ++z)
            for (unsigned y = 0; y < blockDim.y; ++y)
                for (unsigned x = 0; x < blockDim.x; ++x) {
                    launch.threads[i].index = uint3{x, y, z};
                    launch.threads[i].arrived = false;
                    launch.threads[i++].state = unstarted;
                }
    forget_copies();
    races::start_cluster(first, launch.cluster, launch.block_threads);
    while (!failed()) {
        if (launch.head != launch.tail)
            resume(*take_released().fiber);
        else if (launch.next < launch.count)
            start_thread();
        else if (!launch.living)
            return;
        else if (!release())
            fail_deadlock();
    }
}

}  // namespace emulator

// Runs `entry` over the grid, in clusters of so many blocks along x, in an order of orders.hpp. `statics` are the static
// __shared__ arrays; `stacks` holds `stack_bytes` for each thread of a cluster. The message is empty, or what went wrong first.
extern "C" __attribute__((visibility("default"))) void emulator_launch(
    void (*entry)(void**), void** arguments, const unsigned* grid, const unsigned* block,
    unsigned cluster, const emulator::Shared* statics, size_t statics_count, size_t shared_bytes, uint64_t order,
    char* stacks, size_t stack_bytes, char* message, size_t message_bytes)
{
    using namespace emulator;
    launch.entry = entry;
    launch.arguments = arguments;
    launch.order = Order(order);
    launch.message = message;
    launch.message_bytes = message_bytes;
    launch.stacks = stacks;
    launch.stack_bytes = stack_bytes;
    launch.fibers_made = launch.idle_count = 0;
    gridDim = dim3(grid[0], grid[1], grid[2]);
    blockDim = dim3(block[0], block[1], block[2]);
    launch.cluster = cluster;
    launch.block_threads = block[0] * block[1] * block[2];
    launch.dynamic_bytes = shared_bytes;
    launch.statics = statics;
    launch.statics_count = statics_count;
    size_t static_bytes = 0;
    for (size_t i = 0; i < statics_count; ++i) static_bytes += statics[i].bytes;
    message[0] = 0;
    races::start(&fail);
    for (unsigned rank = 0; rank < cluster; ++rank) {
        void* shared = nullptr;
        if (shared_bytes && posix_memalign(&shared, 128, shared_bytes)) fail("no memory for shared memory");
        launch.dynamic[rank] = static_cast<char*>(shared);
        launch.kept[rank] = cluster > 1 ? static_cast<char*>(malloc(static_bytes)) : nullptr;
        races::add_shared(launch.dynamic[rank], shared_bytes, rank);
    }
    const size_t clusters = size_t(grid[0]) * grid[1] * grid[2] / cluster;
    size_t* const turns = static_cast<size_t*>(malloc(clusters * sizeof(size_t)));
    launch.order.fill(turns, clusters);
    for (size_t turn = 0; turn < clusters && !failed(); ++turn) {
        const size_t first = turns[turn] * cluster;
        blockIdx = uint3{unsigned(first % grid[0]), unsigned(first / grid[0] % grid[1]),
                         unsigned(first / grid[0] / grid[1])};
        launch.first_x = blockIdx.x;
        launch.rank = 0;
        dynamic_shared = launch.dynamic[0];
        for (size_t i = 0; i < statics_count; ++i) poison(statics[i]);
        for (unsigned rank = 0; rank < cluster; ++rank) {
            poison({launch.dynamic[rank], shared_bytes});
            if (launch.kept[rank]) poison({launch.kept[rank], static_bytes});
        }
        run_cluster(first);
    }
    races::finish();
    free(turns);
    for (unsigned rank = 0; rank < cluster; ++rank) {
        free(launch.dynamic[rank]);
        free(launch.kept[rank]);
    }
}

// Running a grid: every block from poisoned shared memory to its last thread. Compiled once, and linked with each
// kernel.

#include "copies.hpp"

namespace emulator {

// Where a static __shared__ array begins, and its bytes.
struct Shared {
    char* begin;
    size_t bytes;
};

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
    return (launch.order.is_random() && release_warps(launch.order.draw())) || release_warps(0) ||
           release_barrier();
}

inline void run_block(size_t block)
{
    launch.next = launch.head = launch.tail = 0;
    launch.living = launch.count = blockDim.x * blockDim.y * blockDim.z;
    launch.order.fill(launch.turns, launch.count);
    unsigned i = 0;
    for (unsigned z = 0; z < blockDim.z; ++z)
        for (unsigned y = 0; y < blockDim.y; ++y)
            for (unsigned x = 0; x < blockDim.x; ++x) {
                launch.threads[i].index = uint3{x, y, z};
                launch.threads[i++].state = unstarted;
            }
    forget_copies();
    races::start_block(block, launch.count);
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

// Runs `entry` over the grid in an order of orders.hpp. `statics` are the static __shared__ arrays; `stacks` holds
// `stack_bytes` for each of 1024 threads. The message is empty, or what went wrong first.
extern "C" __attribute__((visibility("default"))) void emulator_launch(
    void (*entry)(void**), void** arguments, const unsigned* grid, const unsigned* block,
    const emulator::Shared* statics, size_t statics_count, size_t shared_bytes, uint64_t order, char* stacks,
    size_t stack_bytes, char* message, size_t message_bytes)
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
    void* shared = nullptr;
    message[0] = 0;
    if (shared_bytes && posix_memalign(&shared, 128, shared_bytes)) fail("no memory for shared memory");
    dynamic_shared = static_cast<char*>(shared);
    size_t blocks = size_t(grid[0]) * grid[1] * grid[2];
    size_t* const turns = static_cast<size_t*>(malloc(blocks * sizeof(size_t)));
    launch.order.fill(turns, blocks);
    races::start(dynamic_shared, shared_bytes, &fail);
    for (size_t turn = 0; turn < blocks && !failed(); ++turn) {
        const size_t number = turns[turn];
        blockIdx = uint3{unsigned(number % grid[0]), unsigned(number / grid[0] % grid[1]),
                         unsigned(number / grid[0] / grid[1])};
        for (size_t i = 0; i < statics_count; ++i) poison(statics[i]);
        poison({dynamic_shared, shared_bytes});
        run_block(number);
    }
    races::finish();
    free(turns);
    free(shared);
}

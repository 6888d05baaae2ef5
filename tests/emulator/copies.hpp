// Copies to shared memory that a thread starts and waits for: cp.async of sm_80. A copy may happen at any moment
// between the two: it does at once in the ascending order, when it is waited for in the descending one, and at
// either in a random one. A copy that no one waits for is dropped then.

#pragma once

#include <vector>

#include "scheduler.hpp"

namespace emulator {

struct Copy {
    void* to;
    const void* from;
    unsigned bytes, group;
    bool done;
};

struct Copies {
    std::vector<Copy> pending;
    unsigned groups;  // that were ended
};

Copies copies[max_threads];

inline void forget_copies()
{
    for (unsigned i = 0; i < launch.count; ++i) {
        copies[i].pending.clear();
        copies[i].groups = 0;
    }
}

// Not seen as an access: the copy was told of.
__attribute__((no_sanitize("thread"), noinline)) inline void carry_out(const Copy& copy)
{
    memcpy(copy.to, copy.from, copy.bytes);
}

}  // namespace emulator

// cp.async.shared.global of a value of 4, 8 or 16 bytes.
template <class Value>
inline void cp_async(Value* to, const Value* from, int line = __builtin_LINE())
{
    using namespace emulator;
    const unsigned bytes = sizeof(Value);
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async takes 4, 8 or 16 bytes");
    if ((uintptr_t(to) | uintptr_t(from)) % bytes)
        fail("cp.async at line %d: an address is no multiple of %u bytes", line, bytes);
    races::start_copy(to, bytes);
    Order& order = launch.order;
    const bool done = order.is_random() ? order.draw() % 2 : order.kind == ascending;
    Copies& own = copies[number(*launch.current)];
    own.pending.push_back(Copy{to, from, bytes, own.groups, done});
    if (done) carry_out(own.pending.back());
}

inline void cp_async_commit_group() { ++emulator::copies[emulator::number(*emulator::launch.current)].groups; }

inline void cp_async_wait_group(unsigned left)
{
    using namespace emulator;
    Copies& own = copies[number(*launch.current)];
    size_t kept = 0;
    for (const Copy& copy : own.pending) {
        if (copy.group + left >= own.groups) {
            own.pending[kept++] = copy;
            continue;
        }
        if (!copy.done) carry_out(copy);
        races::end_copy(copy.to, copy.bytes);
    }
    own.pending.resize(kept);
}

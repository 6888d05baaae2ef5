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

void start_copy(void* to, const void* from, unsigned bytes, int line)
{
    if ((uintptr_t(to) | uintptr_t(from)) % bytes)
        fail("cp.async at line %d: an address is no multiple of %u bytes", line, bytes);
    races::start_copy(to, bytes);
    Order& order = launch.order;
    const bool done = order.is_random() ? order.draw() % 2 : order.kind == ascending;
    Copies& own = copies[number(*launch.current)];
    own.pending.push_back(Copy{to, from, bytes, own.groups, done});
    if (done) carry_out(own.pending.back());
}

void end_group() { ++copies[number(*launch.current)].groups; }

void wait_for_groups(unsigned left)
{
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

}  // namespace emulator

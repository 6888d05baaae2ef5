// Sectors of global memory: 32 bytes each. What a warp's threads access at once is a phase, and takes as many turns as
// there are different sectors.
//
// Threads of a warp are taken to be at one place of the program together as often as they have come there since the
// block's last barrier.

#pragma once

#include <stddef.h>
#include <stdint.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace emulator {
namespace races {

struct Counted {
    uint64_t phases = 0, turns = 0;
};

class Sectors {
public:
    std::map<std::string, Counted> counted;  // by array

    explicit Sectors(bool counts = false) : counts(counts) {}

    // `address` is from the array's begin on.
    void touch(const std::string& array, void* place, unsigned thread, uintptr_t address, size_t bytes)
    {
        if (!counts) return;
        std::set<uintptr_t>& sectors = global[{array, place, times[{place, thread}]++, thread / 32}];
        const auto found = turned.find(array);
        for (uintptr_t word = address / 4; word <= (address + bytes - 1) / 4; ++word) {
            if (found == turned.end()) {
                sectors.insert(word / 8);
                continue;
            }
            const auto [batch, width] = found->second;
            sectors.insert((word / (batch * width) * batch * width + word % width * batch + word / width % batch) / 8);
        }
    }

    // Counts an array (..., batch, width) of 4-byte numbers as if it were (..., width, batch).
    void turn(const std::string& array, size_t batch, size_t width) { turned[array] = {batch, width}; }

    // All threads have come to a barrier, or a block begins or the launch ends.
    void barrier()
    {
        for (const auto& [key, sectors] : global) {
            Counted& found = counted[std::get<0>(key)];
            ++found.phases;
            found.turns += sectors.size();
        }
        global.clear();
        times.clear();
    }

private:
    bool counts;
    std::map<std::string, std::pair<size_t, size_t>> turned;
    std::map<std::pair<void*, unsigned>, unsigned> times;
    std::map<std::tuple<std::string, void*, unsigned, unsigned>, std::set<uintptr_t>> global;
};

}  // namespace races
}  // namespace emulator

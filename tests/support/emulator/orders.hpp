// The order in which blocks run and the threads of a block are taken: ascending, descending, or random.

#pragma once

#include <stddef.h>
#include <stdint.h>

namespace emulator {

// Any other number is the seed of a random order.
constexpr uint64_t ascending = 0, descending = 1;

struct Order {
    uint64_t kind, state;

    explicit Order(uint64_t kind = ascending) : kind(kind), state(kind) {}

    bool is_random() const { return kind > descending; }

    // 64 random bits, by splitmix64.
    uint64_t draw()
    {
        uint64_t bits = state += 0x9E3779B97F4A7C15;
        bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9;
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EB;
        return bits ^ bits >> 31;
    }

    size_t below(size_t count) { return size_t(draw() % count); }

    // The numbers 0 to count - 1 in this order.
    template <typename Number>
    void fill(Number* numbers, size_t count)
    {
        for (size_t i = 0; i < count; ++i) numbers[i] = Number(kind == descending ? count - 1 - i : i);
        for (size_t i = count; is_random() && i > 1; --i) {
            const size_t other = below(i);
            const Number swapped = numbers[i - 1];
            numbers[i - 1] = numbers[other];
            numbers[other] = swapped;
        }
    }
};

}  // namespace emulator

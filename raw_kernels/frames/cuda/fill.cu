// Values of every step's transposed Jacobian of a recurrent cell, in CSR order: rows by the state before,
// columns by the state after; each state's units together. A block of a former and a new state is dense where
// the one reaches the other through W_hh, else diagonal. The identity where t >= lengths[b]. A thread a value.

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"
#include "frames/cuda/walk.cuh"

// A block of a step's Jacobian: former state, new state, and whether it is dense. By rows.
struct Block {
    int former, later, dense;
};

__device__ const Block TABLE[] = {BLOCKS};
const int COUNT = sizeof(TABLE) / sizeof(Block);

// Where an entry lies: its row's and its column's state, and their units.
struct Entry {
    int former, later;
    size_type row, column;

    __device__ __forceinline__ Entry(size_type place, size_type hidden)
    {
        int begin = 0;
        while (true) {
            const int state = TABLE[begin].former;
            int end = begin;
            size_type width = 0;
            for (; end < COUNT && TABLE[end].former == state; ++end)
                width += TABLE[end].dense ? hidden : 1;
            if (place < width * hidden) {
                former = state;
                row = place / width;
                place %= width;
                break;
            }
            place -= width * hidden;
            begin = end;
        }
        for (; place >= (TABLE[begin].dense ? hidden : 1); ++begin) place -= TABLE[begin].dense ? hidden : 1;
        later = TABLE[begin].later;
        column = TABLE[begin].dense ? place : row;
    }
};

extern "C" __global__ void CELL_fill(
    const real* __restrict__ state,         // (steps, batch | STATES, hidden): of CELL_forward
    const real* __restrict__ gates,         // (steps, batch | SAVED, hidden): of CELL_forward
    const real* __restrict__ initial,       // (batch | STATES, hidden): before step 0
    const real* __restrict__ weight_hh,     // (RECURRENT * hidden, hidden)
    const real* __restrict__ unit,          // (PARAMETERS * hidden): of each unit
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ values,              // (steps, ENTRIES, batch) output only
    size_type steps, size_type hidden, size_type batch, int reverse)
{
    const size_type plane = hidden * batch, entries = ENTRIES;
    GRID_STRIDE(item, steps * entries * batch) {
        const size_type b = item % batch, t = item / batch / entries;
        const Entry entry(item / batch % entries, hidden);
        if (t >= lengths[b]) {
            values[item] = entry.former == entry.later && entry.row == entry.column ? real(1) : real(0);
            continue;
        }
        const Walk walk = {b, int(hidden)};
        const size_type o = walk.start(P) + entry.column;
        const bool start = t == (reverse ? steps - 1 : 0);
        const real* const earlier = start ? initial : state + (reverse ? t + 1 : t - 1) * P * plane;
        real saved[K_EXTENT], after[P], before[P], p[Q_EXTENT], a[A_EXTENT], x[P], d[P], w[R_EXTENT], by[P] = {};
        for (int k = 0; k < K; ++k) saved[k] = gates[t * K * plane + walk.start(K) + k * hidden + entry.column];
        for (int i = 0; i < P; ++i) {
            after[i] = Cell::reads_after >> i & 1 ? state[t * P * plane + i * hidden + o] : real(0);
            before[i] = Cell::reads_before >> i & 1 ? earlier[i * hidden + o] : real(0);
            x[i] = i == entry.later ? real(1) : real(0);
        }
        load_unit(unit + entry.column, int(hidden), p);
        Cell::coefficients_of(saved, after, before, p, a);
        Cell::enter(a, x);
        Cell::carry(a, x, d);
        for (int g = 0; g < R; ++g) w[g] = weight_hh[(g * hidden + entry.column) * hidden + entry.row];
        Cell::entry(a, w, by);
        real value = 0;
        for (int i = 0; i < P; ++i) {
            if (entry.former == 0) value += by[i] * x[i];
            if (entry.former == i && entry.row == entry.column && Cell::direct >> i & 1) value += d[i];
        }
        values[item] = value;
    }
}

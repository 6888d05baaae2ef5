// Values of every step's transposed Jacobian of a GRU cell, dense (paper, equations 9 to 11): by the state
// before, h' gains z itself, (h - n) z (1 - z) through z, (1 - z)(1 - n²) r through m and
// (1 - z)(1 - n²) m r (1 - r) through r. The identity where t >= lengths[b]. A thread a value.

#include "prelude.cuh"

extern "C" __global__ void gru_fill(
    const real* __restrict__ state,         // (steps, hidden, batch): of gru_forward
    const real* __restrict__ gates,         // (steps, 4 * hidden, batch): of gru_forward
    const real* __restrict__ initial,       // (hidden, batch): the state before step 0
    const real* __restrict__ weight_hh,     // (3 * hidden, hidden)
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ values,              // (steps, hidden * hidden, batch) output only, rows by the
                                            // state before
    size_type steps, size_type hidden, size_type batch, int reverse)
{
    const size_type plane = hidden * batch, block = hidden * hidden;
    GRID_STRIDE(item, steps * block * batch) {
        const size_type b = item % batch, j = item / batch % hidden, i = item / batch / hidden % hidden;
        const size_type t = item / batch / block, o = j * batch + b;
        if (t >= lengths[b]) {
            values[item] = i == j ? real(1) : real(0);
            continue;
        }
        const bool start = t == (reverse ? steps - 1 : 0);
        const real before = start ? initial[o] : state[(reverse ? t + 1 : t - 1) * plane + o];
        const real* const kept = gates + t * 4 * plane + o;
        const real r = kept[0], z = kept[plane], n = kept[2 * plane], m = kept[3 * plane];
        const real* const w = weight_hh + j * hidden + i;
        const real by_n = (real(1) - z) * (real(1) - n * n);
        values[item] = (i == j ? z : real(0)) + (before - n) * z * (real(1) - z) * w[block] +
                       by_n * (r * w[2 * block] + m * r * (real(1) - r) * w[0]);
    }
}

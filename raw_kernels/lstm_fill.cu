// Values of every step's transposed Jacobian of an LSTM cell over (h, c): the rows of h before are dense
// over h' and c', those of c before hold the two diagonals, so 2 H² + 2 H entries in CSR order. With
// y = tanh(c'): c' gains a = c f (1 - f) W_f + g i (1 - i) W_i + i (1 - g²) W_g by h and f by c; h' gains
// o (1 - y²) of these, and y o (1 - o) W_o by h. The identity where t >= lengths[b]. A thread an entry.

#include "prelude.cuh"
#include "activations.cuh"

extern "C" __global__ void lstm_fill(
    const real* __restrict__ state,         // (steps, 2 * hidden, batch): of lstm_forward
    const real* __restrict__ gates,         // (steps, 4 * hidden, batch): of lstm_forward
    const real* __restrict__ initial,       // (2 * hidden, batch): h then c before step 0
    const real* __restrict__ weight_hh,     // (4 * hidden, hidden)
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ values,              // (steps, 2 * hidden * hidden + 2 * hidden, batch) output only,
                                            // rows by the state before
    size_type steps, size_type hidden, size_type batch, int reverse)
{
    const size_type plane = hidden * batch, block = hidden * hidden, entries = 2 * block + 2 * hidden;
    GRID_STRIDE(item, steps * entries * batch) {
        const size_type b = item % batch, entry = item / batch % entries, t = item / batch / entries;
        const bool by_h = entry < 2 * block;
        const size_type column = by_h ? entry % (2 * hidden) : (entry - 2 * block) % 2 * hidden + (entry - 2 * block) / 2;
        const size_type i = by_h ? entry / (2 * hidden) : (entry - 2 * block) / 2, j = column % hidden;
        const bool of_h = column < hidden;
        if (t >= lengths[b]) {
            values[item] = i == j && of_h == by_h ? real(1) : real(0);
            continue;
        }
        const size_type o = j * batch + b;
        const real* const kept = gates + t * 4 * plane + o;
        const real in = kept[0], f = kept[plane], g = kept[2 * plane], out = kept[3 * plane];
        const real y = tanh_of(state[t * 2 * plane + plane + o]);
        const real handed = of_h ? out * (real(1) - y * y) : real(1);
        real value = f;
        if (by_h) {
            const bool start = t == (reverse ? steps - 1 : 0);
            const real c = start ? initial[plane + o] : state[(reverse ? t + 1 : t - 1) * 2 * plane + plane + o];
            const real* const w = weight_hh + j * hidden + i;
            value = c * f * (real(1) - f) * w[block] + g * in * (real(1) - in) * w[0] +
                    in * (real(1) - g * g) * w[2 * block];
            values[item] = handed * value + (of_h ? y * out * (real(1) - out) * w[3 * block] : real(0));
        } else {
            values[item] = handed * value;
        }
    }
}

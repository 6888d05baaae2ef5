// Values of every step's transposed Jacobian of a tanh or ReLU cell: W_hhᵀ diag(f'(h_t)), dense; the
// identity where t >= lengths[b]. A thread a value.

#include "prelude.cuh"

extern "C" __global__ void rnn_fill(
    const real* __restrict__ state,         // (steps, hidden, batch): of rnn_forward
    const real* __restrict__ weight_hh,     // (hidden, hidden)
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ values,              // (steps, hidden * hidden, batch) output only, rows by the
                                            // state before
    size_type steps, size_type hidden, size_type batch, int relu)
{
    GRID_STRIDE(item, steps * hidden * hidden * batch) {
        const size_type b = item % batch, j = item / batch % hidden, i = item / batch / hidden % hidden;
        const size_type t = item / batch / hidden / hidden;
        if (t >= lengths[b]) {
            values[item] = i == j ? real(1) : real(0);
            continue;
        }
        const real h = state[(t * hidden + j) * batch + b];
        const real slope = relu ? (h > real(0) ? real(1) : real(0)) : real(1) - h * h;
        values[item] = weight_hh[j * hidden + i] * slope;
    }
}

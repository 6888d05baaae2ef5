// One direction of a tanh or ReLU recurrent layer: h_s = f(projected_t + W_hh h_{s-1}), where step s is
// time t = s, or steps - 1 - s where `reverse`. A step with t >= lengths[b] leaves sample b's state.
//
// A block a sample, a thread a row of W_hh, held in registers to H = 64; beyond, a thread takes every
// blockDim-th row and reads it from memory. Two states in shared memory, one barrier a step; a thread's
// inputs are fetched 8 steps early.

#include "prelude.cuh"
#include "activations.cuh"
#include "recurrent.cuh"

__device__ inline real activate(real x, int relu)
{
    return relu ? (x > real(0) ? x : x != x ? x : real(0)) : tanh_of(x);
}

template <int N>
__device__ inline void walk(
    const real* __restrict__ projected, const real* __restrict__ weight_hh,
    const real* __restrict__ initial, const long long* __restrict__ lengths, real* __restrict__ state,
    real* __restrict__ final, size_type steps, size_type hidden, size_type batch, int relu, int reverse,
    real* held)
{
    const size_type plane = hidden * batch;
    const int width = padded_width<N>(hidden), row = threadIdx.x;
    Row<N> weights;
    weights.load_row(weight_hh, row, hidden, hidden);
    const size_type stride = reverse ? -plane : plane;
    for (size_type b = blockIdx.x; b < batch; b += gridDim.x) {
        const size_type length = lengths[b], first = (reverse ? steps - 1 : 0) * plane + row * batch + b;
        Stream<8> inputs(projected, first, stride, row < hidden ? steps : 0);
        real *now = held, *next = held + width;
        for (int k = row; k < width; k += blockDim.x)
            now[k] = next[k] = k < hidden ? initial[k * batch + b] : real(0);
        wait_for_block();
        for_each_step<8>(steps, [&](size_type s, int a) {
            const bool inside = (reverse ? steps - 1 - s : s) < length;
            for_each<N>(hidden, [&](int j) {
                const size_type aside = (j - row) * batch;
                const real value =
                    inside ? activate(inputs.read(a, aside) + weights.dot_row(weight_hh, j, hidden, now), relu)
                           : now[j];
                next[j] = value;
                state[inputs.place + aside] = value;
            });
            inputs.advance(a);
            real* const swapped = now;
            now = next;
            next = swapped;
            wait_for_block();
        });
        for (int j = row; j < hidden; j += blockDim.x) final[j * batch + b] = now[j];
        wait_for_block();
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) rnn_forward(
    const real* __restrict__ projected,     // (steps, hidden, batch): W_ih x + b_ih + b_hh
    const real* __restrict__ weight_hh,     // (hidden, hidden)
    const real* __restrict__ initial,       // (hidden, batch): the state before step 0
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ state,               // (steps, hidden, batch) output only, by time
    real* __restrict__ final,               // (hidden, batch) output only, the state after the last step
    size_type steps, size_type hidden, size_type batch, int relu, int reverse)
{
    extern __shared__ __align__(16) real held[];
#define WALK(N)                                                                                      \
    walk<N>(projected, weight_hh, initial, lengths, state, final, steps, hidden, batch, relu,        \
            reverse, held)
    BY_WIDTH(hidden, WALK);
}

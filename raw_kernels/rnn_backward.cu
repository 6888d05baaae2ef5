// Back through each chunk of one direction of a tanh or ReLU recurrent layer, from the gradient at its
// end: g = W_hhᵀ delta_{s+1} + gradient_t, delta_s = f'(h_s) g. A step with t >= lengths[b] hands g on
// as it is, and its own gradient counts for nothing.
//
// A block a chunk and sample, a thread a column of W_hh, held in registers to H = 64; beyond, a thread
// takes every blockDim-th column and reads it from memory. Two barriers a step of delta in shared memory; what
// a thread reads is fetched 8 steps early.

#include "prelude.cuh"
#include "recurrent.cuh"

template <int N>
__device__ inline void walk(
    const real* __restrict__ state, const real* __restrict__ weight_hh, const real* __restrict__ gradient,
    const real* __restrict__ boundary, const long long* __restrict__ lengths, real* __restrict__ delta,
    real* __restrict__ entering, size_type steps, size_type hidden, size_type batch, size_type chunk,
    int per_step, int relu, int reverse, real* held)
{
    const size_type plane = hidden * batch, chunks = (steps + chunk - 1) / chunk;
    const int width = padded_width<N>(hidden), row = threadIdx.x;
    real *carried = held, *deltas = held + width;
    Row<N> weights;
    weights.load_column(weight_hh, row, row < hidden, hidden);
    for (int k = row; k < width; k += blockDim.x) deltas[k] = real(0);
    for (size_type item = blockIdx.x; item < chunks * batch; item += gridDim.x) {
        const size_type piece = item / batch, b = item % batch, length = lengths[b];
        const size_type begin = piece * chunk, end = min(begin + chunk, steps);
        const size_type place = piece * plane + b, stride = reverse ? plane : -plane;
        const size_type first = (reverse ? steps - end : end - 1) * plane + row * batch + b;
        const size_type count = row < hidden ? end - begin : 0;
        Stream<8> states(state, first, stride, count), gradients(gradient, first, stride, per_step ? count : 0);
        for (int j = row; j < hidden; j += blockDim.x) carried[j] = boundary[place + j * batch];
        for_each_step<8>(end - begin, [&](size_type back, int a) {
            const size_type s = end - 1 - back;
            const bool inside = (reverse ? steps - 1 - s : s) < length;
            for_each<N>(hidden, [&](int j) {
                const size_type aside = (j - row) * batch;
                real value = 0;
                if (inside) {
                    const real h = states.read(a, aside);
                    const real g = carried[j] + (per_step ? gradients.read(a, aside) : real(0));
                    value = relu ? (h > real(0) ? g : real(0)) : g * (real(1) - h * h);
                }
                deltas[j] = value;
                delta[states.place + aside] = value;
            });
            states.advance(a);
            gradients.advance(a);
            wait_for_block();
            if (inside)
                for_each<N>(hidden, [&](int j) {
                    carried[j] = weights.dot_column(weight_hh, j, hidden, deltas);
                });
            wait_for_block();
        });
        for (int j = row; j < hidden; j += blockDim.x) entering[place + j * batch] = carried[j];
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) rnn_backward(
    const real* __restrict__ state,         // (steps, hidden, batch): of rnn_forward
    const real* __restrict__ weight_hh,     // (hidden, hidden)
    const real* __restrict__ gradient,      // (steps, hidden, batch) if per_step else (0): by each step's
                                            // output
    const real* __restrict__ boundary,      // ((steps + chunk - 1) // chunk, hidden, batch): by the state
                                            // at each chunk's end, from later steps; chunks are of steps,
                                            // not times
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ delta,               // (steps, hidden, batch) output only, by `projected`
    real* __restrict__ entering,            // ((steps + chunk - 1) // chunk, hidden, batch) output only, by
                                            // the state before each chunk
    size_type steps, size_type hidden, size_type batch, size_type chunk, int per_step, int relu,
    int reverse)
{
    extern __shared__ __align__(16) real held[];
#define WALK(N)                                                                                       \
    walk<N>(state, weight_hh, gradient, boundary, lengths, delta, entering, steps, hidden, batch,     \
            chunk, per_step, relu, reverse, held)
    BY_WIDTH(hidden, WALK);
}

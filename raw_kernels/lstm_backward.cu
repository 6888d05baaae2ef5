// Back through each chunk of one direction of an LSTM layer, from the gradients by h and c at its end:
// c's gains o (1 - tanh(c)²) of h's; the gates' follow from both, with the derivatives of their
// nonlinearities; then h's is W_hhᵀ delta + gradient and c's is f of c's. A step with t >= lengths[b]
// hands both on as they are, and its own gradient counts for nothing.
//
// A block a chunk and sample, a thread a gate and column of W_hh, held in registers to H = 64; beyond, a
// thread takes every blockDim-th and reads it from memory. What a thread reads is fetched some steps early.

#include "prelude.cuh"
#include "activations.cuh"
#include "recurrent.cuh"

template <int N>
__device__ inline void walk(
    const real* __restrict__ state, const real* __restrict__ gates, const real* __restrict__ initial,
    const real* __restrict__ weight_hh, const real* __restrict__ gradient,
    const real* __restrict__ boundary, const long long* __restrict__ lengths, real* __restrict__ delta,
    real* __restrict__ entering, size_type steps, size_type hidden, size_type batch, size_type chunk,
    int per_step, int reverse, real* held)
{
    constexpr int A = steps_ahead<N>();
    const size_type plane = hidden * batch, chunks = (steps + chunk - 1) / chunk;
    const int width = padded_width<N>(hidden), row = threadIdx.x, rows = 4 * hidden;
    real *deltas = held, *carried = deltas + 4 * width, *memory = carried + hidden, *sums = memory + hidden;
    Row<N> weights;
    const size_type gate = row / hidden;
    weights.load_column(weight_hh + (row < rows ? gate * hidden * hidden : 0), row - gate * hidden,
                        row < rows, hidden);
    for (int k = row; k < 4 * width; k += blockDim.x) deltas[k] = real(0);
    wait_for_block();
    for (size_type item = blockIdx.x; item < chunks * batch; item += gridDim.x) {
        const size_type piece = item / batch, b = item % batch, length = lengths[b];
        const size_type begin = piece * chunk, end = min(begin + chunk, steps);
        const size_type place = piece * 2 * plane + b, stride = reverse ? plane : -plane;
        const size_type last = (reverse ? steps - end : end - 1) * plane, mine = row * batch + b;
        const size_type count = row < hidden ? end - begin : 0;
        const size_type of_memory = 2 * last + plane + mine, later = count && begin == 0 ? count - 1 : count;
        Stream<A, 4> kept(gates, 4 * last + mine, 4 * stride, count, plane);
        Stream<A> cs(state, of_memory, 2 * stride, count);
        Stream<A> befores(state, of_memory + 2 * stride, 2 * stride, later);
        Stream<A> gradients(gradient, last + mine, stride, per_step ? count : 0);
        for (int j = row; j < hidden; j += blockDim.x) {
            carried[j] = boundary[place + j * batch];
            memory[j] = boundary[place + plane + j * batch];
        }
        for_each_step<A>(end - begin, [&](size_type back, int a) {
            const size_type s = end - 1 - back;
            const bool inside = (reverse ? steps - 1 - s : s) < length;
            for_each<N>(hidden, [&](int j) {
                const size_type aside = (j - row) * batch;
                real di = 0, df = 0, dg = 0, d_o = 0;
                if (inside) {
                    const real i = kept.read(a, aside, 0), f = kept.read(a, aside, 1);
                    const real g = kept.read(a, aside, 2), out = kept.read(a, aside, 3);
                    const real before = s == 0 ? initial[plane + j * batch + b] : befores.read(a, aside);
                    const real y = tanh_of(cs.read(a, aside));
                    const real by_h = carried[j] + (per_step ? gradients.read(a, aside) : real(0));
                    const real by_c = memory[j] + by_h * out * (real(1) - y * y);
                    di = by_c * g * i * (real(1) - i);
                    df = by_c * before * f * (real(1) - f);
                    dg = by_c * i * (real(1) - g * g);
                    d_o = by_h * y * out * (real(1) - out);
                    memory[j] = by_c * f;
                }
                deltas[j] = di;
                deltas[width + j] = df;
                deltas[2 * width + j] = dg;
                deltas[3 * width + j] = d_o;
                real* const written = delta + kept.place + aside;
                written[0] = di;
                written[plane] = df;
                written[2 * plane] = dg;
                written[3 * plane] = d_o;
            });
            kept.advance(a);
            cs.advance(a);
            befores.advance(a);
            gradients.advance(a);
            wait_for_block();
            for_each<N>(rows, [&](int k) {
                sums[k] = weights.dot_column(weight_hh + k / hidden * hidden * hidden, k % hidden, hidden,
                                             deltas + k / hidden * width);
            });
            wait_for_block();
            if (inside)
                for_each<N>(hidden, [&](int j) {
                    carried[j] = (sums[j] + sums[hidden + j]) + (sums[2 * hidden + j] + sums[3 * hidden + j]);
                });
        });
        for (int j = row; j < hidden; j += blockDim.x) {
            entering[place + j * batch] = carried[j];
            entering[place + plane + j * batch] = memory[j];
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) lstm_backward(
    const real* __restrict__ state,         // (steps, 2 * hidden, batch): of lstm_forward
    const real* __restrict__ gates,         // (steps, 4 * hidden, batch): of lstm_forward
    const real* __restrict__ initial,       // (2 * hidden, batch): h then c before step 0
    const real* __restrict__ weight_hh,     // (4 * hidden, hidden)
    const real* __restrict__ gradient,      // (steps, hidden, batch) if per_step else (0): by each step's
                                            // output
    const real* __restrict__ boundary,      // ((steps + chunk - 1) // chunk, 2 * hidden, batch): by h and c
                                            // at each chunk's end, from later steps; chunks are of steps,
                                            // not times
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ delta,               // (steps, 4 * hidden, batch) output only, by `projected`
    real* __restrict__ entering,            // ((steps + chunk - 1) // chunk, 2 * hidden, batch) output
                                            // only, by h and c before each chunk
    size_type steps, size_type hidden, size_type batch, size_type chunk, int per_step, int reverse)
{
    extern __shared__ __align__(16) real held[];
#define WALK(N)                                                                                       \
    walk<N>(state, gates, initial, weight_hh, gradient, boundary, lengths, delta, entering, steps,    \
            hidden, batch, chunk, per_step, reverse, held)
    BY_WIDTH(hidden, WALK);
}

// Back through each chunk of one direction of a GRU layer, from the gradient g at its end (paper,
// equations 9 to 11): n's by (1 - z)(1 - n²), z's by (h - n) z (1 - z), r's by m r (1 - r) of n's, m's by r
// of n's; then g = z g + W_hrᵀ dr + W_hzᵀ dz + W_hnᵀ dm + gradient. A step with t >= lengths[b] hands g on
// as it is, and its own gradient counts for nothing.
//
// A block a chunk and sample, a thread a gate and column of W_hh, held in registers to H = 64; beyond, a
// thread takes every blockDim-th and reads it from memory. What a thread reads is fetched some steps early.

#include "prelude.cuh"
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
    const int width = padded_width<N>(hidden), row = threadIdx.x, rows = 3 * hidden;
    real *deltas = held, *carried = deltas + 3 * width, *sums = carried + hidden;
    Row<N> weights;
    const size_type gate = row / hidden;
    weights.load_column(weight_hh + (row < rows ? gate * hidden * hidden : 0), row - gate * hidden,
                        row < rows, hidden);
    for (int k = row; k < 3 * width; k += blockDim.x) deltas[k] = real(0);
    wait_for_block();
    for (size_type item = blockIdx.x; item < chunks * batch; item += gridDim.x) {
        const size_type piece = item / batch, b = item % batch, length = lengths[b];
        const size_type begin = piece * chunk, end = min(begin + chunk, steps);
        const size_type place = piece * plane + b, stride = reverse ? plane : -plane;
        const size_type last = (reverse ? steps - end : end - 1) * plane, mine = row * batch + b;
        const size_type count = row < hidden ? end - begin : 0;
        const size_type later = count && begin == 0 ? count - 1 : count;
        Stream<A, 4> kept(gates, 4 * last + mine, 4 * stride, count, plane);
        Stream<A> befores(state, last + mine + stride, stride, later);
        Stream<A> gradients(gradient, last + mine, stride, per_step ? count : 0);
        for (int j = row; j < hidden; j += blockDim.x) carried[j] = boundary[place + j * batch];
        for_each_step<A>(end - begin, [&](size_type back, int a) {
            const size_type s = end - 1 - back;
            const bool inside = (reverse ? steps - 1 - s : s) < length;
            for_each<N>(hidden, [&](int j) {
                const size_type aside = (j - row) * batch;
                real dr = 0, dz = 0, dn = 0, dm = 0;
                if (inside) {
                    const real r = kept.read(a, aside, 0), z = kept.read(a, aside, 1);
                    const real n = kept.read(a, aside, 2), m = kept.read(a, aside, 3);
                    const real before = s == 0 ? initial[j * batch + b] : befores.read(a, aside);
                    const real g = carried[j] + (per_step ? gradients.read(a, aside) : real(0));
                    dn = g * (real(1) - z) * (real(1) - n * n);
                    dz = g * (before - n) * z * (real(1) - z);
                    dr = dn * m * r * (real(1) - r);
                    dm = dn * r;
                    carried[j] = g * z;
                }
                deltas[j] = dr;
                deltas[width + j] = dz;
                deltas[2 * width + j] = dm;
                real* const out = delta + kept.place + aside;
                out[0] = dr;
                out[plane] = dz;
                out[2 * plane] = dn;
                out[3 * plane] = dm;
            });
            kept.advance(a);
            befores.advance(a);
            gradients.advance(a);
            wait_for_block();
            for_each<N>(rows, [&](int i) {
                sums[i] = weights.dot_column(weight_hh + i / hidden * hidden * hidden, i % hidden, hidden,
                                             deltas + i / hidden * width);
            });
            wait_for_block();
            for_each<N>(hidden, [&](int j) { carried[j] += sums[j] + sums[hidden + j] + sums[2 * hidden + j]; });
        });
        for (int j = row; j < hidden; j += blockDim.x) entering[place + j * batch] = carried[j];
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) gru_backward(
    const real* __restrict__ state,         // (steps, hidden, batch): of gru_forward
    const real* __restrict__ gates,         // (steps, 4 * hidden, batch): of gru_forward
    const real* __restrict__ initial,       // (hidden, batch): the state before step 0
    const real* __restrict__ weight_hh,     // (3 * hidden, hidden)
    const real* __restrict__ gradient,      // (steps, hidden, batch) if per_step else (0): by each step's
                                            // output
    const real* __restrict__ boundary,      // ((steps + chunk - 1) // chunk, hidden, batch): by the state
                                            // at each chunk's end, from later steps; chunks are of steps,
                                            // not times
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ delta,               // (steps, 4 * hidden, batch) output only, by `projected` (r, z,
                                            // n) and by m
    real* __restrict__ entering,            // ((steps + chunk - 1) // chunk, hidden, batch) output only, by
                                            // the state before each chunk
    size_type steps, size_type hidden, size_type batch, size_type chunk, int per_step, int reverse)
{
    extern __shared__ __align__(16) real held[];
#define WALK(N)                                                                                       \
    walk<N>(state, gates, initial, weight_hh, gradient, boundary, lengths, delta, entering, steps,    \
            hidden, batch, chunk, per_step, reverse, held)
    BY_WIDTH(hidden, WALK);
}

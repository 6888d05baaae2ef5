// One direction of a GRU layer, gates in PyTorch's order: r and z = sigmoid(projected + W_hh h),
// m = W_hn h + b_hn, n = tanh(projected + r m), h' = (1 - z) n + z h (paper, appendix E). Step s is time
// t = s, or steps - 1 - s where `reverse`. A step with t >= lengths[b] leaves sample b's state; its
// gates are 0.
//
// A block a sample, a thread a row of W_hh, held in registers to H = 64; beyond, a thread takes every
// blockDim-th row and reads it from memory. Two barriers a step; a thread's inputs are fetched 8 steps early.

#include "prelude.cuh"
#include "activations.cuh"
#include "recurrent.cuh"

template <int N>
__device__ inline void walk(
    const real* __restrict__ projected, const real* __restrict__ weight_hh,
    const real* __restrict__ bias_n, const real* __restrict__ initial,
    const long long* __restrict__ lengths, real* __restrict__ state, real* __restrict__ gates,
    real* __restrict__ final, size_type steps, size_type hidden, size_type batch, int reverse, real* held)
{
    const size_type plane = hidden * batch, rows = 3 * hidden;
    const int width = padded_width<N>(hidden), row = threadIdx.x;
    real *now = held, *sums = held + width, *inputs = sums + rows;
    Row<N> weights;
    weights.load_row(weight_hh, row, rows, hidden);
    const size_type stride = reverse ? -plane : plane;
    for (size_type b = blockIdx.x; b < batch; b += gridDim.x) {
        const size_type length = lengths[b], step = reverse ? steps - 1 : 0, mine = row * batch + b;
        Stream<8> read(projected, step * 3 * plane + mine, 3 * stride, row < rows ? steps : 0);
        size_type place = step * plane + b;
        for (int k = row; k < width; k += blockDim.x) now[k] = k < hidden ? initial[k * batch + b] : real(0);
        wait_for_block();
        for_each_step<8>(steps, [&](size_type s, int a) {
            const bool inside = (reverse ? steps - 1 - s : s) < length;
            for_each<N>(rows, [&](int i) {
                const real input = read.read(a, (i - row) * batch);
                const bool of_n = i >= 2 * hidden;
                if (of_n) inputs[i - 2 * hidden] = input;
                sums[i] = weights.dot_row(weight_hh, i, hidden, now) + (of_n ? bias_n[i - 2 * hidden] : input);
            });
            read.advance(a);
            wait_for_block();
            for_each<N>(hidden, [&](int j) {
                real r = 0, z = 0, n = 0, m = 0, h = now[j];
                if (inside) {
                    r = sigmoid_of(sums[j]);
                    z = sigmoid_of(sums[hidden + j]);
                    m = sums[2 * hidden + j];
                    n = tanh_of(inputs[j] + r * m);
                    h = (real(1) - z) * n + z * h;
                }
                now[j] = h;
                state[place + j * batch] = h;
                real* const gate = gates + 4 * (place - b) + j * batch + b;
                gate[0] = r;
                gate[plane] = z;
                gate[2 * plane] = n;
                gate[3 * plane] = m;
            });
            place += stride;
            wait_for_block();
        });
        for (int j = row; j < hidden; j += blockDim.x) final[j * batch + b] = now[j];
        wait_for_block();
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) gru_forward(
    const real* __restrict__ projected,     // (steps, 3 * hidden, batch): W_ih x + b_ih, and b_hr and b_hz
    const real* __restrict__ weight_hh,     // (3 * hidden, hidden)
    const real* __restrict__ bias_n,        // (hidden): b_hn
    const real* __restrict__ initial,       // (hidden, batch): the state before step 0
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ state,               // (steps, hidden, batch) output only, by time
    real* __restrict__ gates,               // (steps, 4 * hidden, batch) output only, r, z, n and m
    real* __restrict__ final,               // (hidden, batch) output only, the state after the last step
    size_type steps, size_type hidden, size_type batch, int reverse)
{
    extern __shared__ __align__(16) real held[];
#define WALK(N)                                                                                      \
    walk<N>(projected, weight_hh, bias_n, initial, lengths, state, gates, final, steps, hidden,      \
            batch, reverse, held)
    BY_WIDTH(hidden, WALK);
}

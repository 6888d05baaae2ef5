// One direction of an LSTM layer, gates in PyTorch's order: i, f and o = sigmoid(projected + W_hh h),
// g = tanh(projected + W_hh h), c' = f c + i g, h' = o tanh(c'). Step s is time t = s, or steps - 1 - s
// where `reverse`. A step with t >= lengths[b] leaves sample b's state; its gates are 0.
//
// A block a sample, a thread a row of W_hh, held in registers to H = 64; beyond, a thread takes every
// blockDim-th row and reads it from memory. Two barriers a step; a thread's inputs are fetched 8 steps early.

#include "prelude.cuh"
#include "activations.cuh"
#include "recurrent.cuh"

template <int N>
__device__ inline void walk(
    const real* __restrict__ projected, const real* __restrict__ weight_hh,
    const real* __restrict__ initial, const long long* __restrict__ lengths, real* __restrict__ state,
    real* __restrict__ gates, real* __restrict__ final, size_type steps, size_type hidden,
    size_type batch, int reverse, real* held)
{
    const size_type plane = hidden * batch, rows = 4 * hidden;
    const int width = padded_width<N>(hidden), row = threadIdx.x;
    real *now = held, *memory = held + width, *sums = memory + hidden;
    Row<N> weights;
    weights.load_row(weight_hh, row, rows, hidden);
    const size_type stride = reverse ? -plane : plane;
    for (size_type b = blockIdx.x; b < batch; b += gridDim.x) {
        const size_type length = lengths[b], step = reverse ? steps - 1 : 0, mine = row * batch + b;
        Stream<8> inputs(projected, step * 4 * plane + mine, 4 * stride, row < rows ? steps : 0);
        size_type place = step * 2 * plane + b;
        for (int k = row; k < width; k += blockDim.x) {
            now[k] = k < hidden ? initial[k * batch + b] : real(0);
            if (k < hidden) memory[k] = initial[plane + k * batch + b];
        }
        wait_for_block();
        for_each_step<8>(steps, [&](size_type s, int a) {
            const bool inside = (reverse ? steps - 1 - s : s) < length;
            for_each<N>(rows, [&](int k) {
                const size_type aside = (k - row) * batch;
                real gate = 0;
                if (inside) {
                    const real sum = inputs.read(a, aside) + weights.dot_row(weight_hh, k, hidden, now);
                    gate = k / hidden == 2 ? tanh_of(sum) : sigmoid_of(sum);
                }
                sums[k] = gate;
                gates[inputs.place + aside] = gate;
            });
            inputs.advance(a);
            wait_for_block();
            for_each<N>(hidden, [&](int j) {
                if (inside) {
                    memory[j] = sums[hidden + j] * memory[j] + sums[j] * sums[2 * hidden + j];
                    now[j] = sums[3 * hidden + j] * tanh_of(memory[j]);
                }
                state[place + j * batch] = now[j];
                state[place + plane + j * batch] = memory[j];
            });
            place += 2 * stride;
            wait_for_block();
        });
        for (int j = row; j < hidden; j += blockDim.x) {
            final[j * batch + b] = now[j];
            final[plane + j * batch + b] = memory[j];
        }
        wait_for_block();
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) lstm_forward(
    const real* __restrict__ projected,     // (steps, 4 * hidden, batch): W_ih x + b_ih + b_hh
    const real* __restrict__ weight_hh,     // (4 * hidden, hidden)
    const real* __restrict__ initial,       // (2 * hidden, batch): h then c before step 0
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ state,               // (steps, 2 * hidden, batch) output only, h then c, by time
    real* __restrict__ gates,               // (steps, 4 * hidden, batch) output only, i, f, g and o
    real* __restrict__ final,               // (2 * hidden, batch) output only, h then c after the last step
    size_type steps, size_type hidden, size_type batch, int reverse)
{
    extern __shared__ __align__(16) real held[];
#define WALK(N)                                                                                      \
    walk<N>(projected, weight_hh, initial, lengths, state, gates, final, steps, hidden, batch,       \
            reverse, held)
    BY_WIDTH(hidden, WALK);
}

// Gradients by the weights of one direction of a recurrent layer, from the parts of sequence_gradients. Recurrent gate g
// has the rows from sources[g] * hidden on. A warp takes a few parts of 32 numbers, and the first adds them up.

#include "prelude.cuh"

const int LANES = 32, WARPS = 8;

extern "C" __global__ void __launch_bounds__(LANES * WARPS) sequence_gradient_sums(
    const real* __restrict__ partial,  // (parts, rows, columns): by the states, by the inputs, by the biases, padding
    const int* __restrict__ sources,   // (recurrent)
    real* __restrict__ weight_ih,      // (gates * hidden, inputs) output only
    real* __restrict__ weight_hh,      // (recurrent * hidden, hidden) output only
    real* __restrict__ bias_ih,        // (gates * hidden) if biased else (0) output only
    real* __restrict__ bias_hh,        // (recurrent * hidden) if biased else (0) output only
    size_type parts, size_type rows, size_type columns, size_type gates, size_type recurrent, size_type hidden,
    size_type inputs, int biased)
{
    __shared__ real sums[WARPS][LANES];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const size_type by_input = gates * hidden * (inputs + 1), all = by_input + recurrent * hidden * (hidden + 1);
    for (size_type begin = (size_type)blockIdx.x * LANES; begin < all; begin += (size_type)gridDim.x * LANES) {
        const size_type item = begin + lane;
        real* to = nullptr;
        size_type from = 0;
        if (item < by_input) {
            const size_type row = item / (inputs + 1), column = item % (inputs + 1);
            from = row * columns + hidden + column;
            if (column < inputs) to = weight_ih + row * inputs + column;
            else if (biased) to = bias_ih + row;
        } else if (item < all) {
            const size_type row = (item - by_input) / (hidden + 1), column = (item - by_input) % (hidden + 1);
            from = (sources[row / hidden] * hidden + row % hidden) * columns;
            from += column < hidden ? column : hidden + inputs;
            if (column < hidden) to = weight_hh + row * hidden + column;
            else if (biased) to = bias_hh + row;
        }
        real sum = 0;
#pragma unroll 4
        for (size_type part = warp; part < parts; part += WARPS) sum += partial[part * rows * columns + from];
        __syncthreads();
        sums[warp][lane] = sum;
        __syncthreads();
        if (warp || !to) continue;
        for (int w = 1; w < WARPS; ++w) sum += sums[w][lane];
        *to = sum;
    }
}

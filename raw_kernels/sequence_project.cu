// One matrix times the values of every step and sample: out_t = W values_t + bias, or Wᵀ values_t + bias
// where `transposed`. A thread an output; a matrix that fits lies in shared memory, neighbouring outputs side by side.

#include "prelude.cuh"

const int STAGED = 32 * 1024 / int(sizeof(real));

extern "C" __global__ void sequence_project(
    const real* __restrict__ values,  // (steps, batch | rows): its first `inputs` rows
    const real* __restrict__ weight,  // (outputs, inputs): (inputs, outputs) where transposed
    const real* __restrict__ bias,    // (outputs) if biased else (0)
    real* __restrict__ out,           // (steps, batch | outputs) output only
    size_type steps, size_type rows, size_type inputs, size_type outputs, size_type batch,
    int transposed, int biased)
{
    __shared__ real staged[STAGED];
    const size_type by_input = transposed ? outputs : 1, by_output = transposed ? 1 : inputs;
    const bool fits = outputs * inputs <= STAGED;
    const int width = int(outputs), depth = int(inputs);
    for (int e = threadIdx.x; fits && e < width * depth; e += blockDim.x)
        staged[transposed ? e : e % depth * width + e / depth] = weight[e];
    __syncthreads();
    GRID_STRIDE(item, steps * outputs * batch) {
        const size_type o = item % outputs;
        const real* const value = values + item / outputs * rows;
        real sum = biased ? bias[o] : real(0);
        if (fits) {
#pragma unroll 4
            for (int i = 0; i < depth; ++i) sum += staged[i * width + int(o)] * value[i];
        } else {
            const real* const entry = weight + o * by_output;
            for (size_type i = 0; i < inputs; ++i) sum += entry[i * by_input] * value[i];
        }
        out[item] = sum;
    }
}

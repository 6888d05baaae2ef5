// One matrix times the values of every step and sample: out_t = W values_t + bias, or Wᵀ values_t + bias
// where `transposed`. A thread an output.

#include "prelude.cuh"

extern "C" __global__ void sequence_project(
    const real* __restrict__ values,  // (steps, batch | rows): its first `inputs` rows
    const real* __restrict__ weight,  // (outputs, inputs): (inputs, outputs) where transposed
    const real* __restrict__ bias,    // (outputs) if biased else (0)
    real* __restrict__ out,           // (steps, batch | outputs) output only
    size_type steps, size_type rows, size_type inputs, size_type outputs, size_type batch,
    int transposed, int biased)
{
    const size_type by_input = transposed ? outputs : 1, by_output = transposed ? 1 : inputs;
    GRID_STRIDE(item, steps * outputs * batch) {
        const size_type o = item % outputs;
        const real* value = values + item / outputs * rows;
        const real* entry = weight + o * by_output;
        real sum = biased ? bias[o] : real(0);
        for (size_type i = 0; i < inputs; ++i, ++value, entry += by_input) sum += *entry * *value;
        out[item] = sum;
    }
}

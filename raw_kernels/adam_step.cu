// One step of Adam (Kingma and Ba 2015, algorithm 1) over all parameters laid end to end, in
// PyTorch's form: weight decay is added to the gradient, and epsilon to the corrected root.
// Where `blocked` is not 0 nothing changes.

#include "prelude.cuh"

extern "C" __global__ void adam_step(
    const int* __restrict__ blocked,      // (1): set where a gradient is not finite
    const long long* __restrict__ steps,  // (1): this one counted: t
    const real* __restrict__ gradient,    // (count)
    real* __restrict__ parameter,         // (count) input and output
    real* __restrict__ first,             // (count) input and output, running mean of the gradient
    real* __restrict__ second,            // (count) input and output, running mean of its square
    size_type count, double rate, double beta1, double beta2, double epsilon, double weight_decay)
{
    const double correction1 = 1 - pow(beta1, double(*steps)), correction2 = 1 - pow(beta2, double(*steps));
    GRID_STRIDE(item, *blocked ? 0 : count) {
        real g = gradient[item] + real(weight_decay) * parameter[item];
        real m = first[item] + (g - first[item]) * real(1 - beta1);
        real v = real(beta2) * second[item] + real(1 - beta2) * g * g;
        first[item] = m;
        second[item] = v;
        real root = sqrt(v) / real(sqrt(correction2)) + real(epsilon);
        parameter[item] -= real(rate / correction1) * m / root;
    }
}

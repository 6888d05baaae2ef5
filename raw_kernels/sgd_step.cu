// One step of stochastic gradient descent with momentum over all parameters laid end to end,
// in PyTorch's form: g += weight_decay p; v = momentum v + (1 - dampening) g (v = g at the first
// step); g = nesterov ? g + momentum v : v; p -= rate g. Where `blocked` is not 0 nothing changes.

#include "prelude.cuh"

extern "C" __global__ void sgd_step(
    const int* __restrict__ blocked,      // (1): set where a gradient is not finite
    const long long* __restrict__ steps,  // (1): this one counted
    const real* __restrict__ gradient,    // (count)
    real* __restrict__ parameter,         // (count) input and output
    real* __restrict__ velocity,          // (count) if momentum else (0) input and output
    size_type count, double rate, double momentum, double dampening, double weight_decay, int nesterov)
{
    GRID_STRIDE(item, *blocked ? 0 : count) {
        real step = gradient[item] + real(weight_decay) * parameter[item];
        if (momentum != 0) {
            real kept = *steps == 1 ? step : real(momentum) * velocity[item] + real(1 - dampening) * step;
            velocity[item] = kept;
            step = nesterov ? step + real(momentum) * kept : kept;
        }
        parameter[item] -= real(rate) * step;
    }
}

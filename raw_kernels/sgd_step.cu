// One step of stochastic gradient descent with momentum over all parameters laid end to end,
// in PyTorch's form: g += weight_decay p; v = momentum v + (1 - dampening) g (v = g at the first
// step); g = nesterov ? g + momentum v : v; p -= rate g. Where `blocked` is not 0 nothing changes.

#include "prelude.cuh"

extern "C" __global__ void sgd_step(
    const int* __restrict__ blocked,          // (1): set where a gradient is not finite
    const long long* __restrict__ steps,      // (1): this one counted
    const real* __restrict__ gradient,        // (count)
    real* __restrict__ parameter,             // (count) input and output
    real* __restrict__ velocity,              // (count) if moving else (0) input and output
    const unsigned char* __restrict__ group,  // ((count + unit - 1) // unit): of each `unit` parameters
    const double* __restrict__ settings,      // (5 * groups + 1): per group the rate, momentum, dampening, weight
                                              // decay and whether the momentum is Nesterov's; then the factor
                                              // of all rates. There is no momentum if not `moving`
    size_type count, size_type unit, size_type groups, int moving)
{
    const double pace = settings[5 * groups];
    GRID_STRIDE(item, *blocked ? 0 : count) {
        const double* own = settings + (groups == 1 ? 0 : 5 * group[item / unit]);
        const real momentum = real(own[1]);
        real step = gradient[item] + real(own[3]) * parameter[item];
        if (moving && own[1] != 0) {
            real kept = *steps == 1 ? step : momentum * velocity[item] + real(1 - own[2]) * step;
            velocity[item] = kept;
            step = own[4] != 0 ? step + momentum * kept : kept;
        }
        parameter[item] -= real(own[0] * pace) * step;
    }
}

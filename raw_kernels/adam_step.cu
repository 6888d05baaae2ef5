// One step of Adam (Kingma and Ba 2015, algorithm 1) over all parameters laid end to end, in
// PyTorch's form: weight decay is added to the gradient, or with `decoupled` taken from the parameter
// (AdamW: Loshchilov and Hutter 2019), and epsilon is added to the corrected root.
// Where `blocked` is not 0 nothing changes.

#include "prelude.cuh"

extern "C" __global__ void adam_step(
    const int* __restrict__ blocked,          // (1): set where a gradient is not finite
    const long long* __restrict__ steps,      // (1): this one counted: t
    const real* __restrict__ gradient,        // (count)
    real* __restrict__ parameter,             // (count) input and output
    real* __restrict__ first,                 // (count) input and output, running mean of the gradient
    real* __restrict__ second,                // (count) input and output, running mean of its square
    const unsigned char* __restrict__ group,  // ((count + unit - 1) // unit): of each `unit` parameters
    const double* __restrict__ settings,      // (5 * groups + 1): per group the rate, beta 1, beta 2, epsilon and
                                              // weight decay; then the factor of all rates
    size_type count, size_type unit, size_type groups, int decoupled)
{
    // What follows from a group's settings is kept until another group is met: powers are dear.
    int known = -1;
    // The running mean starts from its nearer end, as torch.lerp does: else rounding keeps an old, large mean.
    bool from_gradient = false;
    real keep = real(1), decay = real(0), share = real(0), keep2 = real(0), take2 = real(0);
    real root_scale = real(1), epsilon = real(0), step = real(0);
    GRID_STRIDE(item, *blocked ? 0 : count) {
        const int found = groups == 1 ? 0 : group[item / unit];
        if (found != known) {
            const double* own = settings + 5 * found;
            const double rate = own[0] * settings[5 * groups], t = double(*steps);
            keep = real(decoupled ? 1 - rate * own[4] : 1.0);
            decay = real(decoupled ? 0.0 : own[4]);
            share = real(1 - own[1]);
            from_gradient = share >= real(0.5);
            if (from_gradient) share -= real(1);
            keep2 = real(own[2]);
            take2 = real(1 - own[2]);
            root_scale = real(sqrt(1 - pow(own[2], t)));
            epsilon = real(own[3]);
            step = real(rate / (1 - pow(own[1], t)));
            known = found;
        }
        real p = keep * parameter[item];
        real g = gradient[item] + decay * p;
        real m = (from_gradient ? g : first[item]) + (g - first[item]) * share;
        real v = keep2 * second[item] + take2 * g * g;
        first[item] = m;
        second[item] = v;
        parameter[item] = p - step * m / (sqrt(v) / root_scale + epsilon);
    }
}

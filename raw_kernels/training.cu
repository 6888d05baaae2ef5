// Cross entropy, the check for values that are not finite, and the optimizers' steps.

#include "prelude.cuh"

// ---- cross_entropy ----

// Softmax cross entropy of each row of scores, and the gradient of the mean over the rows that count. One
// thread a row; the maximum is taken out first, so that no exponential overflows. A row whose label is below
// 0 does not count: its scores are not read, its loss and gradient are 0. The target of a row is 1 at its label
// with `smoothing` 0, else 1 - smoothing there and smoothing / classes added everywhere (Szegedy et al. 2016).
extern "C" __global__ void cross_entropy(
    const real* __restrict__ scores,       // (rows, classes)
    const long long* __restrict__ labels,  // (rows): label < classes
    const real* __restrict__ counted,      // (1): rows that count, at least 1 where there are any
    real* __restrict__ losses,             // (rows) output only
    real* __restrict__ gradient,           // (rows, classes) output only, already divided by `counted`
    size_type rows, size_type classes,
    double smoothing  // from 0 to 1
)
{
    GRID_STRIDE(index, rows) {
        const real* row = scores + index * classes;
        real* out = gradient + index * classes;
        size_type label = labels[index];
        if (label < 0) {
            losses[index] = real(0);
            for (size_type k = 0; k < classes; ++k) out[k] = real(0);
            continue;
        }
        real highest = row[0];
        for (size_type k = 1; k < classes; ++k) highest = row[k] > highest ? row[k] : highest;
        real total = real(0);
        for (size_type k = 0; k < classes; ++k) {
            out[k] = exp(row[k] - highest);
            total += out[k];
        }
        real loss = log(total) + highest - row[label];
        if (smoothing > 0) {
            real sum = real(0);
            for (size_type k = 0; k < classes; ++k) sum += row[label] - row[k];
            loss += real(smoothing / classes) * sum;
        }
        losses[index] = loss;
        const real share = real(smoothing / classes), rest = real(1 - smoothing);
        for (size_type k = 0; k < classes; ++k)
            out[k] = (out[k] / total - (k == label ? rest + share : share)) / *counted;
    }
}

// ---- finite_check ----

// Sets a flag where any value is NaN or infinite. It never clears the flag. Threads set it by an atomic operation,
// whose outcome does not depend on their order.
extern "C" __global__ void finite_check(
    const real* __restrict__ values,  // (count)
    int* __restrict__ flag,           // (1) input and output
    size_type count)
{
    bool finite = true;
    GRID_STRIDE(item, count) {
        const real zero_if_finite = values[item] - values[item];
        finite = finite && zero_if_finite == real(0);
    }
    if (!finite) atomicOr(flag, 1);
}

// ---- step_count ----

// Counts an optimizer's steps on the device: a step that is blocked does not count.
extern "C" __global__ void step_count(
    const int* __restrict__ blocked,  // (1): set where a gradient is not finite
    long long* __restrict__ steps     // (1) input and output
)
{
    GRID_STRIDE(item, *blocked ? 0 : 1) steps[item] += 1;
}

// ---- sgd_step ----

// One step of stochastic gradient descent with momentum over all parameters laid end to end,
// in PyTorch's form: g += weight_decay p; v = momentum v + (1 - dampening) g (v = g at the first
// step); g = nesterov ? g + momentum v : v; p -= rate g. Where `blocked` is not 0 nothing changes.
extern "C" __global__ void sgd_step(
    const int* __restrict__ blocked,          // (1): set where a gradient is not finite
    const long long* __restrict__ steps,      // (1): this one counted
    const real* __restrict__ gradient,        // (count)
    real* __restrict__ parameter,             // (count) input and output
    real* __restrict__ velocity,              // (count) if moving else (0) input and output
    const double* __restrict__ settings,      // (6): rate, momentum, dampening, weight decay, whether the momentum
                                              // is Nesterov's, and the factor of the rate. There is no momentum if
                                              // not `moving`
    size_type count, int moving)
{
    const double* own = settings;
    GRID_STRIDE(item, *blocked ? 0 : count) {
        const real momentum = real(own[1]);
        real step = gradient[item] + real(own[3]) * parameter[item];
        if (moving && own[1] != 0) {
            real kept = *steps == 1 ? step : momentum * velocity[item] + real(1 - own[2]) * step;
            velocity[item] = kept;
            step = own[4] != 0 ? step + momentum * kept : kept;
        }
        parameter[item] -= real(own[0] * own[5]) * step;
    }
}

// ---- adam_step ----

// One step of Adam (Kingma and Ba 2015, algorithm 1) over all parameters laid end to end, in
// PyTorch's form: weight decay is added to the gradient, or with `decoupled` taken from the parameter
// (AdamW: Loshchilov and Hutter 2019), and epsilon is added to the corrected root.
// Where `blocked` is not 0 nothing changes.
extern "C" __global__ void adam_step(
    const int* __restrict__ blocked,          // (1): set where a gradient is not finite
    const long long* __restrict__ steps,      // (1): this one counted: t
    const real* __restrict__ gradient,        // (count)
    real* __restrict__ parameter,             // (count) input and output
    real* __restrict__ first,                 // (count) input and output, running mean of the gradient
    real* __restrict__ second,                // (count) input and output, running mean of its square
    const double* __restrict__ settings,      // (6): rate, beta 1, beta 2, epsilon, weight decay, and the factor
                                              // of the rate
    size_type count, int decoupled)
{
    const double* own = settings;
    const double rate = own[0] * own[5], t = double(*steps);
    const real keep = real(decoupled ? 1 - rate * own[4] : 1.0), decay = real(decoupled ? 0.0 : own[4]);
    // The running mean starts from its nearer end, as torch.lerp does: else rounding keeps an old, large mean.
    const bool from_gradient = real(1 - own[1]) >= real(0.5);
    const real share = from_gradient ? real(1 - own[1]) - real(1) : real(1 - own[1]);
    const real keep2 = real(own[2]), take2 = real(1 - own[2]), epsilon = real(own[3]);
    const real root_scale = real(sqrt(1 - pow(own[2], t))), step = real(rate / (1 - pow(own[1], t)));
    GRID_STRIDE(item, *blocked ? 0 : count) {
        real p = keep * parameter[item];
        real g = gradient[item] + decay * p;
        real m = (from_gradient ? g : first[item]) + (g - first[item]) * share;
        real v = keep2 * second[item] + take2 * g * g;
        first[item] = m;
        second[item] = v;
        parameter[item] = p - step * m / (sqrt(v) / root_scale + epsilon);
    }
}

// Softmax cross entropy of each row of scores, and the gradient of the mean over the rows that count. One
// thread a row; the maximum is taken out first, so that no exponential overflows. A row whose label is below
// 0 does not count: its scores are not read, its loss and gradient are 0. The target of a row is 1 at its label
// with `smoothing` 0, else 1 - smoothing there and smoothing / classes added everywhere (Szegedy et al. 2016).

#include "prelude.cuh"

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

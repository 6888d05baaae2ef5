// Softmax cross entropy of each sample, and the gradient of the mean over the batch by the scores.
// One thread a sample; the maximum is taken out first, so that no exponential overflows.
//
//   scores    (batch * classes)    input
//   labels    (batch)              input, 0 <= label < classes
//   losses    (batch)              output only
//   gradient  (batch * classes)    output only, already divided by the batch

#include "prelude.cuh"

extern "C" __global__ void cross_entropy(
    const real* __restrict__ scores, const long long* __restrict__ labels, real* __restrict__ losses,
    real* __restrict__ gradient, size_type batch, size_type classes)
{
    GRID_STRIDE(sample, batch) {
        const real* row = scores + sample * classes;
        real* out = gradient + sample * classes;
        real highest = row[0];
        for (size_type k = 1; k < classes; ++k) highest = row[k] > highest ? row[k] : highest;
        real total = real(0);
        for (size_type k = 0; k < classes; ++k) {
            out[k] = exp(row[k] - highest);
            total += out[k];
        }
        size_type label = labels[sample];
        losses[sample] = log(total) + highest - row[label];
        for (size_type k = 0; k < classes; ++k)
            out[k] = (out[k] / total - (k == label ? real(1) : real(0))) / real(batch);
    }
}

// Counts an optimizer's steps on the device: a step that is blocked does not count.

#include "prelude.cuh"

extern "C" __global__ void step_count(
    const int* __restrict__ blocked,  // (1): set where a gradient is not finite
    long long* __restrict__ steps     // (1) input and output
)
{
    GRID_STRIDE(item, *blocked ? 0 : 1) steps[item] += 1;
}

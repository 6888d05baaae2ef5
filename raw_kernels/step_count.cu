// Counts an optimizer's steps on the device: a step that is blocked does not count.
//
//   blocked  (1)   input, set where a gradient is not finite
//   steps    (1)   input and output

#include "prelude.cuh"

extern "C" __global__ void step_count(
    const int* __restrict__ blocked, long long* __restrict__ steps)
{
    GRID_STRIDE(item, *blocked ? 0 : 1) steps[item] += 1;
}

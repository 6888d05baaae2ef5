// Sets a flag where any value is NaN or infinite. It never clears the flag; every writer writes the
// same value, so the outcome does not depend on the order of threads.

#include "prelude.cuh"

extern "C" __global__ void finite_check(
    const real* __restrict__ values,  // (count)
    int* __restrict__ flag,           // (1) input and output
    size_type count)
{
    GRID_STRIDE(item, count) {
        real zero_if_finite = values[item] - values[item];
        if (!(zero_if_finite == real(0))) *flag = 1;
    }
}

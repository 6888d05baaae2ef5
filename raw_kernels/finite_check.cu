// Sets a flag where any value is NaN or infinite. It never clears the flag. Threads set it by an atomic operation,
// whose outcome does not depend on their order.

#include "prelude.cuh"

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
